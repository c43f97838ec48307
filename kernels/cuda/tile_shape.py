"""The shape of a tile, and how its operands lie in shared memory.

Known without TVM, where extents are fixed.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from ..elements import COMPUTE_DTYPES, ELEMENT_BYTES
from .targets import MAX_THREADS, WARP

Index = Any
"""A Python int, or a TensorIR expression where an extent is known at run time only."""

MMA_M, MMA_N, MMA_K = 16, 8, 16
"""The product of one instruction of the tensor cores, ``mma.m16n8k16``."""

_MMA_LANES = 8  # 16-bit elements in 16 bytes: a row of a fragment

SHARED_ALIGNMENT = 64
"""Bytes that TVM's code generator aligns arrays to."""


@dataclass(frozen=True)
class Tile:
    """The shape of a tile.

    Attributes
    ----------
    threads_m, threads_n
        Threads along M and N.
    tile_m, tile_n
        Sums of a thread along M and N.
    tile_k
        Steps of K in a chunk.
    vector_width
        Elements read from shared memory at once: 1, or as many as 16 bytes hold.
    copies_async
        Whether memory is copied to shared memory past the registers (``cp.async``).
    matrices
        Whole products that a block computes side by side.
    """

    threads_m: int
    threads_n: int
    tile_m: int
    tile_n: int
    tile_k: int
    vector_width: int = 1
    copies_async: bool = False
    matrices: int = 1

    @property
    def rows(self) -> int:
        """Extent along M."""
        return self.threads_m * self.tile_m

    @property
    def columns(self) -> int:
        """Extent along N."""
        return self.threads_n * self.tile_n

    @property
    def threads_per_matrix(self) -> int:
        """Threads that work on one product."""
        return self.threads_m * self.threads_n

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return self.threads_per_matrix * self.matrices

    def fault(self) -> str | None:
        """What is wrong with the shape, or None."""
        if min(self.threads_m, self.threads_n, self.tile_m, self.tile_n, self.tile_k) < 1:
            return "every extent is at least 1"
        if self.threads > MAX_THREADS:
            return f"{self.threads} threads, expected at most {MAX_THREADS}"
        if self.vector_width not in (1, 2, 4):
            return f"vector_width={self.vector_width}: expected 1, 2 or 4"
        if self.tile_k % self.vector_width:
            return f"tile_k={self.tile_k}: expected a multiple of vector_width"
        return None

    def lhs_stage(self, lhs: str) -> Stage:
        """How a chunk of ``lhs`` lies in shared memory."""
        return _stage(self, self.tile_m, self.rows, lhs == "k")

    def rhs_stage(self, rhs: str) -> Stage:
        """How a chunk of ``rhs`` lies in shared memory."""
        return _stage(self, self.tile_n, self.columns, rhs == "k")

    def shared_bytes(self, lhs: str, rhs: str, dtype: str, chunks: int) -> int:
        """Shared memory of a block."""
        size = ELEMENT_BYTES[COMPUTE_DTYPES[dtype]] * self.matrices * min(chunks, 2)
        stages = (self.lhs_stage(lhs), self.rhs_stage(rhs))
        return shared_bytes(stage.elements * size for stage in stages)


@dataclass(frozen=True)
class Stage:
    """A chunk of one operand in shared memory, as rows of the contiguous dimension.

    Attributes
    ----------
    along_k
        Whether that dimension is K.
    outer, inner
        Rows, and elements of a row.
    stride
        From row to row.
    group
        Neighbouring rows (of lhs) or columns (of rhs) that one thread owns.
    """

    along_k: bool
    outer: int
    inner: int
    stride: int
    group: int

    @property
    def elements(self) -> int:
        """Size in elements."""
        return self.outer * self.stride

    def position(self, span: Index, k: Index) -> Any:
        """Where the element at ``span`` (a row of lhs, a column of rhs) and ``k`` lies."""
        outer, inner = (span, k) if self.along_k else (k, span)
        return outer * self.stride + inner


def _stage(tile: Tile, per_thread: int, span: int, along_k: bool) -> Stage:
    width = tile.vector_width
    if not along_k:
        group = width if per_thread % width == 0 else 1
        return Stage(False, tile.tile_k, span, -(-span // width) * width, group)
    vectors = tile.tile_k // width
    # An odd number of vectors from row to row: eight rows read at once meet all banks.
    return Stage(True, span, tile.tile_k, (vectors | 1) * width, 1)


@dataclass(frozen=True)
class MmaTile:
    """The shape of a tile on tensor cores.

    Attributes
    ----------
    warps_m, warps_n
        Warps along M and N.
    tile_m, tile_n
        Instructions of a warp along M and N.
    tile_k
        Steps of K in a chunk.
    """

    warps_m: int
    warps_n: int
    tile_m: int
    tile_n: int
    tile_k: int

    @property
    def rows(self) -> int:
        """Extent along M."""
        return self.warps_m * self.tile_m * MMA_M

    @property
    def columns(self) -> int:
        """Extent along N."""
        return self.warps_n * self.tile_n * MMA_N

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return self.warps_m * self.warps_n * WARP

    def fault(self) -> str | None:
        """What is wrong with the shape, or None."""
        if min(self.warps_m, self.warps_n, self.tile_m, self.tile_n) < 1:
            return "every extent is at least 1"
        if self.threads > MAX_THREADS:
            return f"{self.threads} threads, expected at most {MAX_THREADS}"
        if self.tile_k < MMA_K or self.tile_k % MMA_K:
            return f"tile_k={self.tile_k}: expected a multiple of {MMA_K}"
        return None

    def lhs_stage(self, lhs: str) -> Stage:
        """How a chunk of ``lhs`` lies in shared memory."""
        return _mma_stage(self.rows, self.tile_k, lhs == "k")

    def rhs_stage(self, rhs: str) -> Stage:
        """How a chunk of ``rhs`` lies in shared memory."""
        return _mma_stage(self.columns, self.tile_k, rhs == "k")

    def shared_bytes(self, lhs: str, rhs: str, chunks: int) -> int:
        """Shared memory of a block."""
        stages = (self.lhs_stage(lhs), self.rhs_stage(rhs))
        return shared_bytes(2 * stage.elements * min(chunks, 2) for stage in stages)


def _mma_stage(span: int, tile_k: int, along_k: bool) -> Stage:
    outer, inner = (span, tile_k) if along_k else (tile_k, span)
    # An odd number of rows of fragments: eight of them, read at once, meet all banks.
    return Stage(along_k, outer, inner, (inner // _MMA_LANES | 1) * _MMA_LANES, 1)


def grid_tiles(tile: Tile | MmaTile, m: Index, n: Index) -> Any:
    """Blocks that cover a product."""
    return across_tiles(m, tile.rows) * across_tiles(n, tile.columns)


def across_tiles(extent: Index, size: int) -> Any:
    """Tiles of ``size`` that cover ``extent``."""
    if isinstance(extent, int):
        return -(-extent // size)
    from tvm import tirx

    from ..vectors import int64

    return tirx.truncdiv(extent + int64(size - 1), int64(size))


def shared_bytes(arrays: Iterable[int]) -> int:
    """Shared memory that arrays of so many bytes take, each from an aligned address on."""
    return sum(-(-size // SHARED_ALIGNMENT) * SHARED_ALIGNMENT for size in arrays)
