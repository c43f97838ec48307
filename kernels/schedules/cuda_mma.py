"""Tensor cores: float16 and bfloat16 with sums in float32, any M, N, K."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

from ..cuda import cost
from ..cuda.function import Block, Grid
from ..cuda.mma import emit_mma
from ..cuda.targets import MAX_REGISTERS, CudaTarget
from ..cuda.tile_shape import MMA_K, MMA_M, MMA_N, MmaTile, grid_tiles
from ..cuda.work import of_mma
from ..problem import Problem
from ..vectors import Index
from .cuda_rule import CudaRule
from .rule import Config

_WARPS = ((1, 1), (1, 2), (2, 1), (2, 2), (1, 4), (4, 1), (2, 4), (4, 2))
_TILES_M = (1, 2, 4)
_TILES_N = (1, 2, 3, 4, 8)
_CHUNKS = (16, 32, 64, 128)


@dataclass(frozen=True)
class MmaConfig(Config):
    """Knobs of a tile on tensor cores.

    Attributes
    ----------
    warps_m, warps_n
        Warps along M and N.
    tile_m, tile_n
        Instructions of a warp along M and N, of 16 rows and 8 columns.
    tile_k
        Steps of K in a chunk.
    """

    warps_m: int
    warps_n: int
    tile_m: int
    tile_n: int
    tile_k: int

    def __post_init__(self) -> None:
        fault = self.shape().fault()
        if fault:
            raise ValueError(f"{self}: {fault}")

    def shape(self) -> MmaTile:
        """The tile."""
        return MmaTile(self.warps_m, self.warps_n, self.tile_m, self.tile_n, self.tile_k)

    def stem(self) -> str:
        """The part of a symbol name that stands for the config: initials are not distinct here."""
        return f"w{self.warps_m}x{self.warps_n}_t{self.tile_m}x{self.tile_n}_k{self.tile_k}"


class CudaMma(CudaRule[MmaConfig]):
    """See the module."""

    name = "cuda_mma"
    config_type = MmaConfig

    def refusal(self, problem: Problem, target: CudaTarget) -> str | None:
        """Needs 16-bit floats, an architecture with the instruction, and more than one row."""
        if problem.is_generic:
            return "extents not fixed"
        if problem.dtype not in ("float16", "bfloat16"):
            return "dtype not of 16 bits"
        if not target.multiplies_matrices:
            return "target without mma.m16n8k16"
        return "m is 1" if problem.m == 1 else None

    def space(self, problem: Problem, target: CudaTarget) -> Iterator[MmaConfig]:
        """Tiles less than twice the product, up to a chunk of K."""
        m, n, k = problem.extents()
        for (y, x), tile_m, tile_n, tile_k in itertools.product(
            _WARPS, _TILES_M, _TILES_N, _CHUNKS
        ):
            config = MmaConfig(y, x, tile_m, tile_n, tile_k)
            shape = config.shape()
            if shape.rows >= max(2 * m, MMA_M + 1) or shape.columns >= max(2 * n, MMA_N + 1):
                continue
            if tile_k >= max(2 * k, MMA_K + 1):
                continue
            if self.fits(problem, config):
                yield config

    def cost(self, problem: Problem, target: CudaTarget, config: MmaConfig) -> float:
        """That of copies, fragments and instructions."""
        shape = config.shape()
        return cost.nanoseconds(
            problem,
            target,
            of_mma(problem, shape),
            shared_bytes=self.shared_bytes(problem, config),
            registers=min(
                MAX_REGISTERS, 64 + shape.tile_m * (4 + shape.tile_n * 4) + 2 * shape.tile_n
            ),
        )

    def shared_bytes(self, problem: Problem, config: MmaConfig) -> int:
        """Two chunks, unless there is only one."""
        _, _, k = problem.extents()
        chunks = -(-k // config.tile_k)
        return config.shape().shared_bytes(problem.lhs, problem.rhs, chunks)

    def grid(self, m: Index, n: Index, k: Index, config: MmaConfig) -> Grid:
        """A block for each tile."""
        return Grid(config.shape().threads, grid_tiles(config.shape(), m, n))

    def emit(self, block: Block, config: MmaConfig) -> None:
        """One tile."""
        emit_mma(block, config.shape())
