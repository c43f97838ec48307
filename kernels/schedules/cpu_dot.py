"""Vectors along K: for operands that are both contiguous in K.

The rule for scores = Q x K^T of few rows, where transposing K first costs more than it saves, and
where a length of 17 needs no padding, since it is not the vectors' dimension.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tvm import tirx

from .. import microkernel
from ..compute import Matrix
from ..problem import Problem
from ..targets import Target
from ..vectors import Index, int64
from . import cost, widen
from .cpu_broadcast import Run, for_each
from .rule import Config, Rule


@dataclass(frozen=True)
class DotConfig(Config):
    """Knobs of the dot tile.

    Attributes
    ----------
    tile_m, tile_n
        Rows and columns of a whole tile, powers of two. Their product is the number of
        accumulators. What M and N leave over is covered by smaller powers of two.
    """

    tile_m: int
    tile_n: int

    def __post_init__(self) -> None:
        for name, value in self.to_json().items():
            if value < 1 or value & (value - 1):
                raise ValueError(f"{name}={value}: expected a power of two")


def pieces(extent: int, whole: int) -> list[Run]:
    """``extent`` as runs of powers of two up to ``whole``, the largest first.

    The end may overlap what comes before when that leaves fewer pieces at little waste: 7 is one
    piece of 8 where that fits (a quarter or less computed twice), 5 is 4 + 1.
    """
    runs = []
    start = 0
    size = whole
    while start < extent:
        left = extent - start
        if left >= size:
            runs.append(Run(start, size, left // size))
            start += left // size * size
        elif extent >= size and left * 4 >= size * 3:
            runs.append(Run(extent - size, size, 1))
            start = extent
        else:
            size //= 2
    return runs


class CpuDot(Rule[DotConfig]):
    """See the module."""

    name = "cpu_dot"
    config_type = DotConfig

    def refusal(self, problem: Problem, target: Target) -> str | None:
        """Needs fixed extents and both operands contiguous in K."""
        if problem.is_generic:
            return "extents not fixed"
        if problem.lhs != "k":
            return "lhs not contiguous in k"
        if problem.rhs != "k":
            return "rhs not contiguous in k"
        return None

    def space(self, problem: Problem, target: Target) -> Iterator[DotConfig]:
        """Tiles of up to one accumulator a lane that leave registers for the operands."""
        m, n, k = problem.extents()
        lanes = microkernel.k_lanes(k, target.lanes(problem.dtype))
        tile_m = 1
        while tile_m <= min(m, lanes):
            tile_n = 1
            while tile_n <= min(n, lanes // tile_m):
                if tile_m * tile_n + tile_m + 1 <= target.vector_registers:
                    yield DotConfig(tile_m, tile_n)
                tile_n *= 2
            tile_m *= 2

    def cost(self, problem: Problem, target: Target, config: DotConfig) -> float:
        """Cycles of all tiles."""
        m, n, k = problem.extents()
        lanes = microkernel.k_lanes(k, target.lanes(problem.dtype))
        return sum(
            rows.count
            * columns.count
            * cost.dot_tile(rows.size, columns.size, -(-k // lanes), lanes)
            for rows in pieces(m, config.tile_m)
            for columns in self._columns(n, rows.size, config, lanes)
        )

    def emit(self, matrix: Matrix, target: Target, config: DotConfig) -> None:
        """Runs of rows, and in each the runs of columns."""
        matrix = widen.operands(matrix, self._widened(matrix.problem, config), target)
        lanes = microkernel.k_lanes(matrix.k, target.lanes(matrix.problem.dtype))
        for rows in pieces(matrix.m, config.tile_m):

            def strip(first_row: Index, rows: int = rows.size) -> None:
                runs = self._columns(matrix.n, rows, config, lanes)
                self._strip(matrix, target, first_row, rows, runs, lanes)

            for_each(rows, strip)

    def _strip(
        self,
        matrix: Matrix,
        target: Target,
        first_row: Index,
        rows: int,
        runs: Sequence[Run],
        lanes: int,
    ) -> None:
        """The tiles of ``runs`` of columns, ``rows`` rows each."""
        turns = None
        if matrix.ahead is not None:
            tiles = sum(run.count for run in runs)
            turns = matrix.ahead.over(first_row, rows, matrix.m, tiles)
        vectors = self._vectors(matrix.problem, lanes)
        before = 0
        for run in runs:
            # What stays in registers from tile to tile: each operand, if all that is read of it
            # fits beside the sums.
            needed = rows * run.size + rows + 1
            left_stays = needed + vectors * rows <= target.vector_registers
            needed += vectors * rows if left_stays else 0
            right_stays = needed + vectors * matrix.n <= target.vector_registers

            def tile(
                first_column: Index,
                run: Run = run,
                before: int = before,
                left_stays: bool = left_stays,
                right_stays: bool = right_stays,
            ) -> None:
                if turns is not None:
                    index = tirx.truncdiv(first_column - run.start, int64(run.size))
                    turns.at(index + before)
                apart = matrix.reread(
                    lhs=None if left_stays else first_column,
                    rhs=None if right_stays else first_row,
                )
                self.tile(apart, first_row, rows, first_column, run.size, lanes)

            for_each(run, tile)
            before += run.count

    def tile(
        self,
        matrix: Matrix,
        first_row: Index,
        rows: int,
        first_column: Index,
        columns: int,
        lanes: int,
    ) -> None:
        """One tile of ``rows * columns`` accumulators of ``lanes`` lanes."""
        microkernel.dot_tile(matrix, first_row, rows, first_column, columns, lanes)

    def _vectors(self, problem: Problem, lanes: int) -> int:
        """Vectors along K."""
        _, _, k = problem.extents()
        return -(-k // lanes)

    def workspace_bytes(self, problem: Problem, target: Target, config: DotConfig) -> int:
        """What widened operands take."""
        return widen.workspace_bytes(problem, self._widened(problem, config), target)

    def _widened(self, problem: Problem, config: DotConfig) -> tuple[str, ...]:
        # lhs is read once for each run of columns, rhs once for each run of rows.
        m, _, _ = problem.extents()
        return ("lhs", "rhs") if m > config.tile_m else ("lhs",)

    @staticmethod
    def _columns(n: int, rows: int, config: DotConfig, lanes: int) -> list[Run]:
        # Fewer rows than a whole tile leave accumulators for more columns.
        whole = config.tile_n * (config.tile_m // rows)
        while whole > max(1, n) or whole * rows > lanes:
            whole //= 2
        return pieces(n, max(1, whole))
