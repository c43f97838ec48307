"""The tiles that schedule rules are made of.

A tile keeps its accumulators in vector registers for the whole of K. Two ways to get there:

- :func:`broadcast_tile`: vectors run along N; each step of K multiplies a vector of ``rhs`` by one
  broadcast element of ``lhs``. The outer-product form of Goto and van de Geijn, "Anatomy of
  High-Performance Matrix Multiplication" (2008), without packing, which small matrices do not pay.
- :func:`dot_tile`: vectors run along K; the lanes of each accumulator are summed at the end, a
  whole vector of results at once. For operands that are both contiguous in K.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tvm import tirx
from tvm.tirx.script.builder import ir as T

from .ahead import Turns
from .compute import ADD_MATRIX, ADD_NOTHING, Matrix
from .vectors import ELEMENT_BYTES, Accumulator, Index, int64, lane_sums, part, splat

_LARGE_ADDEND_BYTES = 1 << 16  # does not stay in the first cache from head to head


@dataclass(frozen=True)
class Columns:
    """One vector's worth of columns: ``lanes`` of them from ``start``.

    ``valid`` is None when all lanes lie inside the matrix, else how many do: the others are
    neither read nor written.
    """

    start: Index
    lanes: int
    valid: Index | None = None


def cover(extent: int, lanes: int) -> list[Columns]:
    """Vectors that cover ``extent`` elements, odd extents without a scalar tail.

    The last vector overlaps its neighbour when the extent is no multiple of ``lanes``: both
    compute the same values there. Extents below ``lanes`` take a narrower vector with a mask.
    """
    if extent < lanes:
        narrow = k_lanes(extent, lanes)
        return [Columns(0, narrow, None if extent == narrow else extent)]
    starts = list(range(0, extent - lanes + 1, lanes))
    if extent % lanes:
        starts.append(extent - lanes)
    return [Columns(start, lanes) for start in starts]


def k_lanes(extent: int, lanes: int) -> int:
    """Lanes of a vector along ``extent`` elements: fewer than ``lanes`` if there are fewer."""
    return min(lanes, max(4, 1 << (extent - 1).bit_length()))


def steps(extent: Index, unroll: int, step: Callable[[Index, int], None]) -> None:
    """Run ``step(index, position)`` for each index below ``extent``, ``unroll`` to an iteration.

    ``position`` is the index modulo ``unroll``, a Python int: it may choose a register.
    """
    if isinstance(extent, int):
        whole, rest = divmod(extent, unroll)
        if whole == 1:
            whole, rest = 0, extent
        if whole:
            with T.serial(int64(0), int64(whole)) as iteration:
                for position in range(unroll):
                    step(iteration * unroll + position, position)
        for position in range(rest):
            step(int64(whole * unroll + position), position % unroll)
    else:
        if unroll != 1:
            raise ValueError("a run-time extent is not unrolled")
        with T.serial(int64(0), extent) as iteration:
            step(iteration, 0)


def iterations(extent: int, unroll: int) -> int:
    """Those of :func:`steps`, the last of which may be a part of one."""
    return -(-extent // unroll)


def finish(matrix: Matrix, cells: Sequence[tuple[Index, Columns, Any]]) -> None:
    """Scale sums, add the addend and store them.

    Parameters
    ----------
    matrix
        The product.
    cells
        ``(row, columns, sums)`` each.
    """
    scaled = [(row, c, T.Bind(value * splat(matrix.scale, c.lanes))) for row, c, value in cells]

    def put(row: Index, c: Columns, value: Any) -> None:
        matrix.out.store(matrix.out_index(row, c.start), value, c.lanes, c.valid)

    with T.If(matrix.addend_kind == int64(ADD_NOTHING)):
        with T.Then():
            for row, c, value in scaled:
                put(row, c, value)
        with T.Else(), T.If(matrix.addend_kind == int64(ADD_MATRIX)):
            with T.Then():
                for row, c, value in scaled:
                    index = matrix.addend_index(row, c.start)
                    put(row, c, value + matrix.addend.load(index, c.lanes, c.valid))
            with T.Else():
                for row, c, value in scaled:
                    element = matrix.addend.load(matrix.addend_index(row, 0), 1)
                    put(row, c, value + splat(element, c.lanes))


def prefetch_addend(
    matrix: Matrix, first_row: Index, rows: int, columns: Sequence[Columns]
) -> None:
    """Ask for the part of the addend that :func:`finish` will add, while sums are computed.

    Without it a tile waits at its end for as many lines of the second cache as it has vectors. An
    addend that stays in the first cache from head to head needs nothing of the kind.
    """
    large = matrix.m * matrix.n >= _LARGE_ADDEND_BYTES // ELEMENT_BYTES[matrix.problem.dtype]
    if large is False:
        return
    wanted = matrix.addend_kind == int64(ADD_MATRIX)
    with T.If(wanted if large is True else tirx.all(wanted, large)), T.Then():
        for row in range(rows):
            for c in columns:
                matrix.addend.prefetch(matrix.addend_index(first_row + row, c.start))


LoadRhs = Callable[[Matrix, Index, int], Any]


@dataclass(frozen=True)
class BroadcastStep:
    """One step of a broadcast tile along K.

    Attributes
    ----------
    extent
        Number of steps.
    load_lhs
        ``load_lhs(matrix, row, step)`` is what is multiplied with every column.
    add
        ``add(sum, element, vector)`` adds the product of what was loaded of ``lhs`` and ``rhs``.
    """

    extent: Index
    load_lhs: Callable[[Matrix, Index, Index], Any]
    add: Callable[[Accumulator, Any, Any], None]


def broadcast_tile(
    matrix: Matrix,
    first_row: Index,
    rows: int,
    columns: Sequence[Columns],
    load_rhs: LoadRhs,
    *,
    k_split: int = 1,
    unroll: int = 1,
    step: BroadcastStep | None = None,
    turns: Turns | None = None,
) -> None:
    """Compute ``rows`` x ``columns`` of ``out`` with vectors along N.

    Parameters
    ----------
    matrix
        The product.
    first_row, rows
        The rows computed.
    columns
        The columns computed, a vector each.
    load_rhs
        ``load_rhs(matrix, k, i)`` is row ``k`` of ``rhs`` in ``columns[i]``.
    k_split
        Sets of accumulators that steps of K take in turn, so that a tile of few accumulators does
        not wait for the latency of its own sums. ``unroll`` is a multiple of it.
    unroll
        Steps of K in one loop iteration.
    step
        What a step of K is; one element of K if None.
    turns
        What is asked for in iterations along K, of which there are :func:`iterations`.
    """
    dtype = matrix.compute_dtype
    single = step or BroadcastStep(
        matrix.k,
        lambda matrix, row, k: matrix.lhs.load(matrix.lhs_index(row, k), 1),
        lambda total, element, vector: total.multiply_add(splat(element, total.lanes), vector),
    )
    sums = [
        [[Accumulator(dtype, c.lanes) for c in columns] for _ in range(rows)]
        for _ in range(k_split)
    ]

    def at(k: Index, position: int) -> None:
        if turns is not None and position == 0:
            turns.at(tirx.truncdiv(k, int64(unroll)))
        vectors = [load_rhs(matrix, k, i) for i in range(len(columns))]
        for row in range(rows):
            element = single.load_lhs(matrix, first_row + row, k)
            for column, vector in enumerate(vectors):
                single.add(sums[position % k_split][row][column], element, vector)

    prefetch_addend(matrix, first_row, rows, columns)
    steps(single.extent, unroll, at)
    cells = []
    for row in range(rows):
        for column, c in enumerate(columns):
            value = sums[0][row][column].get()
            for split in range(1, k_split):
                value = value + sums[split][row][column].get()
            cells.append((first_row + row, c, value))
    finish(matrix, cells)


def dot_tile(
    matrix: Matrix,
    first_row: Index,
    rows: int,
    first_column: Index,
    columns: int,
    lanes: int,
) -> None:
    """Compute ``rows`` x ``columns`` of ``out`` with vectors along K.

    ``rows * columns`` is a power of two, at most ``lanes``. Both operands are contiguous in K.
    """
    sums = [Accumulator(matrix.compute_dtype, lanes) for _ in range(rows * columns)]

    def step(k: Index, valid: Index | None) -> None:
        left = [
            matrix.lhs.load(matrix.lhs_index(first_row + row, k), lanes, valid)
            for row in range(rows)
        ]
        for column in range(columns):
            index = matrix.rhs_index(k, first_column + column)
            right = matrix.rhs.load(index, lanes, valid)
            for row in range(rows):
                sums[row * columns + column].multiply_add(left[row], right)

    k_steps(matrix.k, lanes, step)
    finish_dot(matrix, first_row, rows, first_column, columns, sums)


def finish_dot(
    matrix: Matrix,
    first_row: Index,
    rows: int,
    first_column: Index,
    columns: int,
    sums: Sequence[Accumulator],
) -> None:
    """Sum the lanes of a dot tile's accumulators and store the results."""
    totals = lane_sums([s.get() for s in sums], sums[0].lanes)
    cells = []
    for row in range(rows):
        value = totals if rows == 1 else part(totals, row * columns, columns)
        cells.append((first_row + row, Columns(first_column, columns), value))
    finish(matrix, cells)


def k_steps(extent: Index, lanes: int, step: Callable[[Index, Index | None], None]) -> None:
    """``step(k, valid)`` for each vector along K; the last one may be partly valid."""
    if isinstance(extent, int):
        whole, rest = divmod(extent, lanes)
        steps(whole, 2, lambda index, _: step(index * lanes, None))
        if rest:
            step(int64(whole * lanes), rest)
        return
    vectors = T.Bind(tirx.truncdiv(extent, int64(lanes)))
    steps(vectors, 1, lambda index, _: step(index * lanes, None))
    left = T.Bind(extent - vectors * lanes)
    with T.If(left > int64(0)), T.Then():
        step(vectors * lanes, left)
