"""Larger products: a block computes a tile, with two buffers of K in shared memory."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

from ..cuda.function import Block, Grid
from ..cuda.targets import CudaTarget
from ..cuda.tile import emit_tile
from ..cuda.tile_shape import Tile, grid_tiles
from ..cuda.work import tile_shape
from ..elements import COMPUTE_DTYPES
from ..problem import Problem
from ..vectors import Index
from .cuda_rule import CudaRule, may_copy_async, tile_nanoseconds
from .rule import Config

_THREADS = ((8, 8), (8, 16), (16, 8), (16, 16))
_TILES = ((2, 4), (4, 2), (4, 4), (4, 8), (8, 4), (8, 8))
_CHUNKS = (8, 16, 32)


@dataclass(frozen=True)
class TileConfig(Config):
    """Knobs of a tile.

    Attributes
    ----------
    num_threads_y, num_threads_x
        Threads along M and N.
    tile_m, tile_n
        Sums of a thread along M and N.
    tile_k
        Steps of K in a chunk.
    vector_width
        Elements read from shared memory at once.
    copies_async
        1 to copy to shared memory past the registers.
    """

    num_threads_y: int
    num_threads_x: int
    tile_m: int
    tile_n: int
    tile_k: int
    vector_width: int
    copies_async: int

    def __post_init__(self) -> None:
        fault = self.shape().fault()
        if fault:
            raise ValueError(f"{self}: {fault}")

    def shape(self) -> Tile:
        """The tile."""
        return tile_shape(**self.to_json())


class CudaTile(CudaRule[TileConfig]):
    """See the module."""

    name = "cuda_tile"
    config_type = TileConfig

    def refusal(self, problem: Problem, target: CudaTarget) -> str | None:
        """Needs fixed extents that fill a tile of 16 by 16."""
        if problem.is_generic:
            return "extents not fixed"
        m, n, _ = problem.extents()
        return "m or n below 16" if min(m, n) < 16 else None

    def space(self, problem: Problem, target: CudaTarget) -> Iterator[TileConfig]:
        """Tiles no larger than the product, up to a chunk of K."""
        m, n, k = problem.extents()
        copies = may_copy_async(problem, target)
        width = 2 if COMPUTE_DTYPES[problem.dtype] == "float64" else 4
        for (y, x), (tile_m, tile_n), tile_k in itertools.product(_THREADS, _TILES, _CHUNKS):
            if y * tile_m >= 2 * m or x * tile_n >= 2 * n or tile_k >= 2 * k > 2 * _CHUNKS[0]:
                continue
            config = TileConfig(y, x, tile_m, tile_n, tile_k, width, copies)
            if self.fits(problem, config):
                yield config

    def cost(self, problem: Problem, target: CudaTarget, config: TileConfig) -> float:
        """That of the tile."""
        return tile_nanoseconds(problem, target, config.shape())

    def shared_bytes(self, problem: Problem, config: TileConfig) -> int:
        """Two chunks, unless there is only one."""
        _, _, k = problem.extents()
        chunks = -(-k // config.tile_k)
        return config.shape().shared_bytes(problem.lhs, problem.rhs, problem.dtype, chunks)

    def grid(self, m: Index, n: Index, k: Index, config: TileConfig) -> Grid:
        """A block for each tile."""
        return Grid(config.shape().threads, grid_tiles(config.shape(), m, n))

    def emit(self, block: Block, config: TileConfig) -> None:
        """One tile."""
        emit_tile(block, config.shape())
