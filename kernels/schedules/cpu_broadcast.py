"""Vectors along N, ``lhs`` broadcast element by element: for ``rhs`` contiguous in N.

The rule for values = probabilities x V, and for every product that is not transposed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from tvm.tirx.script.builder import ir as T

from .. import microkernel
from ..compute import Matrix
from ..microkernel import BroadcastStep, Columns, LoadRhs
from ..problem import Problem
from ..targets import Target
from ..vectors import Index, int64
from . import cost, widen
from .rule import Config, Rule


@dataclass(frozen=True)
class BroadcastConfig(Config):
    """Knobs of the broadcast tile.

    Attributes
    ----------
    tile_m
        Most rows of a tile; M is divided evenly among as few tiles as that allows.
    tile_vectors
        Most vectors along N of a tile.
    k_split
        Sets of accumulators used in turn along K.
    unroll
        Steps of K in one iteration, a multiple of ``k_split``.
    """

    tile_m: int
    tile_vectors: int
    k_split: int = 1
    unroll: int = 1

    def __post_init__(self) -> None:
        if min(self.tile_m, self.tile_vectors, self.k_split, self.unroll) < 1:
            raise ValueError(f"{self}: every knob is at least 1")
        if self.unroll % self.k_split:
            raise ValueError(f"{self}: unroll must be a multiple of k_split")

    def registers(self) -> int:
        """Vector registers that the tile keeps busy."""
        return self.tile_m * self.tile_vectors * self.k_split + self.tile_vectors + 1


@dataclass(frozen=True)
class Run:
    """``count`` neighbouring pieces of ``size`` each, from ``start``."""

    start: int
    size: int
    count: int


def divide(extent: int, most: int) -> list[Run]:
    """``extent`` in as few pieces of at most ``most`` as possible, of nearly equal size."""
    pieces = -(-extent // most)
    size, larger = divmod(extent, pieces)
    runs = []
    if larger:
        runs.append(Run(0, size + 1, larger))
    if pieces - larger:
        runs.append(Run(larger * (size + 1), size, pieces - larger))
    return runs


def for_each(run: Run, body: Callable[[Index], None]) -> None:
    """``body(start)`` for each piece of ``run``: a loop if there are several."""
    if run.count == 1:
        body(int64(run.start))
    if run.count <= 1:
        return
    with T.serial(int64(0), int64(run.count)) as index:
        body(index * run.size + run.start)


def for_each_column_block(
    columns: Sequence[Columns], most: int, body: Callable[[list[Columns]], None]
) -> None:
    """``body`` for each block of at most ``most`` vectors; equal blocks share one loop."""
    for run in divide(len(columns), most):
        count = run.count
        block_end = run.start + run.size * count
        # The last vector of all may overlap its neighbour or be masked: its block stands alone.
        last = columns[-1]
        regular = last.valid is None and last.start == (len(columns) - 1) * last.lanes
        if block_end == len(columns) and not regular:
            count -= 1
        if count == 1:
            body(list(columns[run.start : run.start + run.size]))
        elif count > 1:
            lanes = columns[0].lanes
            with T.serial(int64(0), int64(count)) as index:
                first = T.Bind(index * (run.size * lanes) + run.start * lanes)
                body([Columns(first + v * lanes, lanes) for v in range(run.size)])
        if count != run.count:
            body(list(columns[block_end - run.size : block_end]))


class CpuBroadcast(Rule[BroadcastConfig]):
    """See the module."""

    name = "cpu_broadcast"
    config_type = BroadcastConfig

    def refusal(self, problem: Problem, target: Target) -> str | None:
        """Needs fixed extents and ``rhs`` contiguous in N."""
        if problem.is_generic:
            return "extents not fixed"
        if problem.rhs != "n":
            return "rhs not contiguous in n"
        return None

    def space(self, problem: Problem, target: Target) -> Iterator[BroadcastConfig]:
        """Tiles that fit the registers."""
        m, n, _ = problem.extents()
        yield from tile_space(m, n, target, target.lanes(problem.dtype))

    def cost(self, problem: Problem, target: Target, config: BroadcastConfig) -> float:
        """Cycles of all tiles."""
        m, n, k = problem.extents()
        return tiles_cost(m, n, k, target.lanes(problem.dtype), config)

    def emit(self, matrix: Matrix, target: Target, config: BroadcastConfig) -> None:
        """Blocks of columns, and in each the rows from top to bottom."""
        matrix = widen.operands(matrix, self._widened(matrix.problem, config), target)
        columns = microkernel.cover(matrix.n, target.lanes(matrix.problem.dtype))
        for_each_column_block(
            columns,
            config.tile_vectors,
            lambda block: emit_rows(matrix, block, rhs_loader(block), target, config),
        )

    def workspace_bytes(self, problem: Problem, target: Target, config: BroadcastConfig) -> int:
        """What widened operands take."""
        return widen.workspace_bytes(problem, self._widened(problem, config), target)

    @staticmethod
    def _widened(problem: Problem, config: BroadcastConfig) -> tuple[str, ...]:
        # lhs is read once for each block of columns, rhs once for each tile of rows.
        m, _, _ = problem.extents()
        return ("lhs", "rhs") if m > config.tile_m else ("lhs",)


def rhs_loader(block: Sequence[Columns]) -> LoadRhs:
    """Loads of ``rhs``, contiguous in N, from where it lies: see ``microkernel.broadcast_tile``."""

    def load_rhs(matrix: Matrix, k: Index, i: int) -> Any:
        c = block[i]
        return matrix.rhs.load(matrix.rhs_index(k, c.start), c.lanes, c.valid)

    return load_rhs


def emit_rows(
    matrix: Matrix,
    block: Sequence[Columns],
    load_rhs: LoadRhs,
    target: Target,
    config: BroadcastConfig,
    step: BroadcastStep | None = None,
) -> None:
    """All rows of one block of columns, in tiles of nearly equal height."""
    lanes = block[0].lanes
    first_column = block[0].start
    if isinstance(first_column, int):
        first_column = -(-first_column // lanes) * lanes  # the last vector may overlap
    extent = step.extent if step is not None else matrix.k
    # The vectors of rhs stay in registers from tile to tile where (nearly) all of them do.
    needed = len(block) * (extent + min(config.tile_m, matrix.m) * config.k_split)
    stays = needed <= target.vector_registers * 9 // 8
    width, whole = len(block) * lanes, -(-matrix.n // lanes) * lanes
    for run in divide(matrix.m, config.tile_m):

        def tile(start: Index, rows: int = run.size) -> None:
            turns = None
            if matrix.ahead is not None:
                done = first_column * matrix.m + start * width
                iterations = microkernel.iterations(extent, config.unroll)
                turns = matrix.ahead.over(done, rows * width, matrix.m * whole, iterations)
            microkernel.broadcast_tile(
                matrix.reread(lhs=block[0].start, rhs=None if stays else start),
                start,
                rows,
                block,
                load_rhs,
                k_split=config.k_split,
                unroll=config.unroll,
                step=step,
                turns=turns,
            )

        for_each(run, tile)


def tile_space(m: int, n: int, target: Target, lanes: int) -> Iterator[BroadcastConfig]:
    """Broadcast tiles for an ``m`` x ``n`` result that fit the target's registers."""
    vectors = len(microkernel.cover(n, lanes))
    for tile_vectors in range(1, min(vectors, 8) + 1):
        for tile_m in range(1, min(m, 16) + 1):
            for k_split in (1, 2, 4):
                accumulators = tile_m * tile_vectors * k_split
                # A large tile hides what its loop costs.
                unroll = 4 if accumulators <= target.vector_registers // 4 else k_split
                config = BroadcastConfig(tile_m, tile_vectors, k_split, unroll)
                if config.registers() <= target.vector_registers:
                    yield config


def tiles_cost(m: int, n: int, k: int, lanes: int, config: BroadcastConfig) -> float:
    """Cycles of all broadcast tiles of an ``m`` x ``n`` x ``k`` product."""
    vectors = len(microkernel.cover(n, lanes))
    return sum(
        rows.count
        * block.count
        * cost.broadcast_tile(rows.size, block.size, k, config.k_split, config.unroll)
        for rows in divide(m, config.tile_m)
        for block in divide(vectors, config.tile_vectors)
    )
