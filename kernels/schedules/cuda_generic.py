"""Run-time M, N, K: the kernel that serves any shape."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ..cuda.function import Block, Grid
from ..cuda.targets import CudaTarget
from ..cuda.tile import emit_tile
from ..cuda.tile_shape import Tile, grid_tiles
from ..problem import Problem
from ..vectors import COMPUTE_DTYPES, Index
from .cuda_rule import CudaRule, may_copy_async
from .rule import Config


@dataclass(frozen=True)
class CudaGenericConfig(Config):
    """Knobs of the generic tile.

    Attributes
    ----------
    tile
        Rows and columns of a block.
    tile_k
        Steps of K in a chunk.
    vector_width
        Elements read from shared memory at once.
    copies_async
        1 to copy to shared memory past the registers.
    """

    tile: int
    tile_k: int
    vector_width: int
    copies_async: int

    def __post_init__(self) -> None:
        fault = "tile: expected a multiple of 16" if self.tile % 16 else self.shape().fault()
        if fault:
            raise ValueError(f"{self}: {fault}")

    def shape(self) -> Tile:
        """The tile: 256 threads."""
        per_thread = self.tile // 16
        return Tile(
            *(16, 16, per_thread, per_thread, self.tile_k),
            self.vector_width,
            bool(self.copies_async),
        )


class CudaGeneric(CudaRule[CudaGenericConfig]):
    """See the module."""

    name = "cuda_generic"
    config_type = CudaGenericConfig

    def refusal(self, problem: Problem, target: CudaTarget) -> str | None:
        """Serves generic problems only; those with fixed extents have better rules."""
        return None if problem.is_generic else "extents fixed"

    def space(self, problem: Problem, target: CudaTarget) -> Iterator[CudaGenericConfig]:
        """Squares, since nothing is known of the shape."""
        copies = may_copy_async(problem, target)
        width = 2 if COMPUTE_DTYPES[problem.dtype] == "float64" else 4
        for tile, tile_k in ((64, 16), (64, 8), (32, 16)):
            yield CudaGenericConfig(tile, tile_k, width, copies)

    def cost(self, problem: Problem, target: CudaTarget, config: CudaGenericConfig) -> float:
        """The first that fits the registers."""
        return float(-config.tile * config.tile_k)

    def shared_bytes(self, problem: Problem, config: CudaGenericConfig) -> int:
        """Two buffers of a chunk."""
        return config.shape().shared_bytes(problem.lhs, problem.rhs, problem.dtype, 2)

    def grid(self, m: Index, n: Index, k: Index, config: CudaGenericConfig) -> Grid:
        """A block for each tile."""
        return Grid(config.shape().threads, grid_tiles(config.shape(), m, n))

    def emit(self, block: Block, config: CudaGenericConfig) -> None:
        """One tile."""
        emit_tile(block, config.shape())
