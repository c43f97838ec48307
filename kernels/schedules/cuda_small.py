"""Small products: a block computes one or several of them whole.

For lengths of a sentence, odd ones first. The threads of a product stand in a grid that fits it:
17 rows are 17, 9, 6 or 5 threads of 1 to 4 rows, and what is left over at the edge is computed and
not written. Several products to a block keep a multiprocessor busy where one is too few threads.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ..cuda.function import Block, Grid
from ..cuda.targets import MAX_THREADS, WARP, CudaTarget
from ..cuda.tile import emit_tile
from ..cuda.tile_shape import Tile
from ..cuda.work import small_shape
from ..elements import COMPUTE_DTYPES
from ..problem import Problem
from ..vectors import Index
from .cuda_rule import CudaRule, may_copy_async, tile_nanoseconds
from .rule import Config

MAX_EXTENT = 64
"""Beyond this M or N, a block computes a part of a product: ``cuda_tile``."""

_SIDES = (1, 2, 3, 4, 6, 8)
_MATRICES = (1, 2, 4, 8)


@dataclass(frozen=True)
class SmallConfig(Config):
    """Knobs of whole products.

    Attributes
    ----------
    matrices
        Products that a block computes.
    tile_m, tile_n
        Sums of a thread along M and N.
    tile_k
        Steps of K in a chunk: all of K, rounded up to vectors, or fewer.
    vector_width
        Elements read from shared memory at once.
    copies_async
        1 to copy to shared memory past the registers.
    """

    matrices: int
    tile_m: int
    tile_n: int
    tile_k: int
    vector_width: int
    copies_async: int

    def __post_init__(self) -> None:
        if min(self.matrices, self.tile_m, self.tile_n) < 1:
            raise ValueError(f"{self}: matrices, tile_m and tile_n are at least 1")
        fault = self.shape(1, 1).fault()
        if fault:
            raise ValueError(f"{self}: {fault}")

    def shape(self, m: int, n: int) -> Tile:
        """The tile that covers a product."""
        return small_shape(m, n, **self.to_json())


class CudaSmall(CudaRule[SmallConfig]):
    """See the module."""

    name = "cuda_small"
    config_type = SmallConfig

    def refusal(self, problem: Problem, target: CudaTarget) -> str | None:
        """Needs fixed M and N of at most :data:`MAX_EXTENT`."""
        if problem.is_generic:
            return "extents not fixed"
        m, n, _ = problem.extents()
        return f"m or n above {MAX_EXTENT}" if max(m, n) > MAX_EXTENT else None

    def space(self, problem: Problem, target: CudaTarget) -> Iterator[SmallConfig]:
        """Grids of threads that fit, with half a warp to 512 threads in a block."""
        m, n, k = problem.extents()
        copies = may_copy_async(problem, target)
        wide = 2 if COMPUTE_DTYPES[problem.dtype] == "float64" else 4
        for width in (1, wide):
            whole = -(-k // width) * width
            for tile_k in dict.fromkeys((whole, *(c for c in (64, 32, 16) if c < whole))):
                for tile_m in (t for t in _SIDES if t <= max(1, m)):
                    for tile_n in (t for t in _SIDES if t <= max(1, n)):
                        for matrices in _MATRICES:
                            threads = -(-m // tile_m) * -(-n // tile_n) * matrices
                            if threads > min(512, MAX_THREADS):
                                continue
                            if threads < WARP and matrices < _MATRICES[-1]:
                                continue
                            config = SmallConfig(matrices, tile_m, tile_n, tile_k, width, copies)
                            if self.fits(problem, config):
                                yield config

    def cost(self, problem: Problem, target: CudaTarget, config: SmallConfig) -> float:
        """That of the tile."""
        m, n, _ = problem.extents()
        return tile_nanoseconds(problem, target, config.shape(m, n))

    def shared_bytes(self, problem: Problem, config: SmallConfig) -> int:
        """One chunk of each product, two where there are more."""
        m, n, k = problem.extents()
        chunks = -(-k // config.tile_k)
        return config.shape(m, n).shared_bytes(problem.lhs, problem.rhs, problem.dtype, chunks)

    def grid(self, m: Index, n: Index, k: Index, config: SmallConfig) -> Grid:
        """A block to some products."""
        return Grid(config.shape(m, n).threads, 1, config.matrices)

    def emit(self, block: Block, config: SmallConfig) -> None:
        """The products of one block."""
        m, n, _ = block.problem.extents()
        emit_tile(block, config.shape(m, n))
