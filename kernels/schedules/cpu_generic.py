"""Run-time M, N, K: the kernel that serves any shape.

Three forms, by which dimension vectors can run along without gathering: N where ``rhs`` is
contiguous in it, K where both operands are, and M for what is left (both operands transposed),
whose results are scattered once at the end of K.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tvm import tirx
from tvm.tirx.script.builder import ir as T

from .. import microkernel
from ..compute import WORKSPACE_ALIGNMENT, Matrix
from ..microkernel import Columns
from ..problem import Problem
from ..targets import Target
from ..vectors import COMPUTE_DTYPES, ELEMENT_BYTES, Accumulator, Index, int64, splat
from .cpu_broadcast import rhs_loader
from .rule import Config, Rule


@dataclass(frozen=True)
class GenericConfig(Config):
    """Knobs of the generic tile.

    Attributes
    ----------
    tile_m
        Rows of a whole tile; those left over are computed one at a time.
    tile_n
        Vectors (columns, where vectors do not run along N) of a whole tile.
    """

    tile_m: int
    tile_n: int

    def __post_init__(self) -> None:
        if min(self.tile_m, self.tile_n) < 1:
            raise ValueError(f"{self}: every knob is at least 1")


class CpuGeneric(Rule[GenericConfig]):
    """See the module."""

    name = "cpu_generic"
    config_type = GenericConfig

    def refusal(self, problem: Problem, target: Target) -> str | None:
        """Serves generic problems only; those with fixed extents have better rules."""
        return None if problem.is_generic else "extents fixed"

    def space(self, problem: Problem, target: Target) -> Iterator[GenericConfig]:
        """One tile for each form, as large as registers and lanes allow."""
        wide = target.vector_registers >= 32
        if problem.rhs == "n":
            yield GenericConfig(6, 4 if wide else 2)
        elif problem.lhs == "k":
            # A result lane for each accumulator.
            tile_m, tile_n = {16: (4, 4), 8: (2, 4), 4: (2, 2)}[target.lanes(problem.dtype)]
            yield GenericConfig(tile_m, tile_n)
        else:
            yield GenericConfig(1, 8)

    def cost(self, problem: Problem, target: Target, config: GenericConfig) -> float:
        """Nothing to compare: there is one config."""
        return 0.0

    def workspace_bytes(self, problem: Problem, target: Target, config: GenericConfig) -> int:
        """The sums of a tile whose vectors run along M."""
        if problem.rhs == "n" or problem.lhs == "k":
            return 0
        element = ELEMENT_BYTES[COMPUTE_DTYPES[problem.dtype]]
        size = config.tile_n * target.lanes(problem.dtype) * element
        return -(-size // WORKSPACE_ALIGNMENT) * WORKSPACE_ALIGNMENT

    def emit(self, matrix: Matrix, target: Target, config: GenericConfig) -> None:
        """The form that fits the layout."""
        lanes = target.lanes(matrix.problem.dtype)
        if matrix.problem.rhs == "n":
            _along_n(matrix, lanes, config)
        elif matrix.problem.lhs == "k":
            _along_k(matrix, lanes, config)
        else:
            _along_m(matrix, lanes, config)


def _tiles(extent: Index, size: int, body: Callable[[Index, int], None]) -> None:
    """``body(start, size)`` for whole tiles, then ``body(start, 1)`` for each one left over."""
    whole = T.Bind(tirx.truncdiv(extent, int64(size)))
    with T.serial(int64(0), whole) as index:
        body(index * size, size)
    if size > 1:
        with T.serial(whole * size, extent) as index:
            body(index, 1)


def _along_n(matrix: Matrix, lanes: int, config: GenericConfig) -> None:
    def rows(block: list[Columns]) -> None:
        def tile(first_row: Index, count: int) -> None:
            microkernel.broadcast_tile(matrix, first_row, count, block, rhs_loader(block))

        _tiles(matrix.m, config.tile_m, tile)

    width = config.tile_n * lanes
    whole = T.Bind(tirx.truncdiv(matrix.n, int64(width)))
    with T.serial(int64(0), whole) as index:
        first = T.Bind(index * width)
        rows([Columns(first + i * lanes, lanes) for i in range(config.tile_n)])
    left = T.Bind(matrix.n - whole * width)
    with T.serial(int64(0), tirx.truncdiv(left + int64(lanes - 1), int64(lanes))) as index:
        first = T.Bind(whole * width + index * lanes)
        rows([Columns(first, lanes, T.Bind(matrix.n - first))])


def _along_k(matrix: Matrix, lanes: int, config: GenericConfig) -> None:
    _tiles(
        matrix.m,
        config.tile_m,
        lambda first_row, rows: _tiles(
            matrix.n,
            config.tile_n,
            lambda first_column, columns: microkernel.dot_tile(
                matrix, first_row, rows, first_column, columns, lanes
            ),
        ),
    )


def _along_m(matrix: Matrix, lanes: int, config: GenericConfig) -> None:
    def tile(first_row: Index, first_column: Index, columns: int) -> None:
        valid = T.Bind(matrix.m - first_row)
        sums = [Accumulator(matrix.compute_dtype, lanes) for _ in range(columns)]
        with T.serial(int64(0), matrix.k) as k:
            left = matrix.lhs.load(matrix.lhs_index(first_row, k), lanes, valid)
            for column in range(columns):
                element = matrix.rhs.load(matrix.rhs_index(k, first_column + column), 1)
                sums[column].multiply_add(left, splat(element, lanes))
        # A vector of sums is a column of the result: it goes out element by element.
        for column in range(columns):
            matrix.workspace.store(int64(column * lanes), sums[column].get(), lanes)
        with T.serial(int64(0), T.min(valid, int64(lanes))) as lane:
            for column in range(columns):
                value = matrix.workspace.load(column * lanes + lane, 1)
                microkernel.finish(
                    matrix, [(first_row + lane, Columns(first_column + column, 1), value)]
                )

    strips = tirx.truncdiv(matrix.m + int64(lanes - 1), int64(lanes))
    with T.serial(int64(0), strips) as strip:
        first_row = T.Bind(strip * lanes)
        _tiles(
            matrix.n,
            config.tile_n,
            lambda first_column, columns: tile(first_row, first_column, columns),
        )
