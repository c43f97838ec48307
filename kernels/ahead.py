"""Prefetching of operands: those of a later matrix while one is computed.

Where the operands of a call do not stay in the caches, each matrix begins with misses that nothing
hides: a tile reads many rows at once, few lines of each, which is no pattern that processors
prefetch. So each tile asks for its share of the operands of a matrix further on in the batch: for
one address in each 64 bytes of a row. Where rows do not begin at a cache line their last line may
be left out; in contiguous operands it is the first of the row behind.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tvm import tirx
from tvm.tirx.script.builder import ir as T

from .elements import ELEMENT_BYTES
from .problem import Problem
from .vectors import Index, View, int64

LINE_BYTES = 64

FAR_BYTES = 1 << 18
"""Operands of the matrices ``[begin, end)`` of a call, from which on they are asked for. The op
calls a kernel for a quarter of a thread's share at a time: four times as much, all that a thread
computes, does not stay in its core's own caches."""

_LEAST_LEAD_BYTES = 1 << 13
"""How far ahead to ask, at least: a core goes on for some KiB while memory answers."""

_LEAST_WORK = 72
"""Multiply-adds to a line of operands. Kernels that do less read about as fast as prefetches are
issued, and mostly one row after the other, which the processor prefetches by itself."""

_MOST_UNROLLED = 8

_MOST_AT_ONCE = 32
_AT_ONCE = 16
"""Lines asked for at once: where there are more than the former, about as many as the latter. More
wait for each other, and loads behind them: a core has a dozen or two under way."""


@dataclass(frozen=True)
class Rows:
    """The rows of an operand.

    Attributes
    ----------
    view
        Its memory.
    first
        Position of its first element.
    stride
        Elements from row to row.
    outer, inner
        Number of rows, and elements of one.
    """

    view: View
    first: Any
    stride: Any
    outer: int
    inner: int

    @property
    def elements(self) -> int:
        """Of a line."""
        return LINE_BYTES // ELEMENT_BYTES[self.view.dtype]

    @property
    def lines(self) -> int:
        """Of a row."""
        return -(-self.inner // self.elements)


@dataclass(frozen=True)
class Ahead:
    """Operands of a matrix further on in the batch.

    Attributes
    ----------
    operands
        What to ask for.
    wanted
        Whether to, at run time: see ``FAR_BYTES``.
    """

    operands: tuple[Rows, ...]
    wanted: Any

    def over(
        self, first: Index, count: int, whole: int, iterations: int
    ) -> Callable[[Any], None] | None:
        """Ask for the share of a tile, in the iterations of its loop if it is much.

        Returns
        -------
        callable or None
            Emits what iteration ``i`` asks for, of ``iterations``; None if all was asked for.
        """
        if iterations == 1 or not self.is_much(count, whole):
            self.prefetch(first, count, whole)
            return None
        # Every so many iterations, a power of two.
        every = max(1, iterations * _AT_ONCE // self._lines(count, whole))
        every = 1 << (every.bit_length() - 1)
        times = -(-iterations // every)

        def at(iteration: Any) -> None:
            def ask() -> None:
                turn = tirx.truncdiv(iteration, int64(every))
                self.prefetch(int64(first) * times + turn * count, count, whole * times)

            if every == 1:
                ask()
            elif isinstance(iteration, tirx.IntImm):
                if iteration.value % every == 0:
                    ask()
            else:
                with T.If(tirx.truncmod(iteration, int64(every)) == int64(0)), T.Then():
                    ask()

        return at

    def is_much(self, count: int, whole: int) -> bool:
        """Whether a tile's share is more than to ask for at once."""
        return self._lines(count, whole) > _MOST_AT_ONCE

    def _lines(self, count: int, whole: int) -> int:
        return sum(rows.outer * rows.lines for rows in self.operands) * count // whole

    def prefetch(self, first: Index, count: int, whole: int) -> None:
        """Ask for the share of a tile.

        Parameters
        ----------
        first, count, whole
            Where the tile begins, and how much it is, of how much a matrix is, in any unit.
        """
        with T.If(self.wanted), T.Then():
            for rows in self.operands:
                _prefetch(rows, first, count, whole)


def _prefetch(rows: Rows, first: Index, count: int, whole: int) -> None:
    elements, lines = rows.elements, rows.lines
    pieces, length = pieces_of(rows.outer, lines, -(-whole // count))
    start, share = share_of(rows.outer * pieces, first, count, whole)
    start = T.Bind(start)

    def piece(index: Any) -> None:
        row, line = start + index, int64(0)
        if pieces > 1:
            # The last piece of a row overlaps the one before where they are not alike.
            line = tirx.min(tirx.truncmod(row, int64(pieces)) * length, int64(lines - length))
            row = tirx.truncdiv(row, int64(pieces))
        begin = T.Bind(rows.first + row * rows.stride + line * elements)
        _each(length, lambda further: rows.view.prefetch(begin + further * elements))

    _each(share, piece)


def pieces_of(rows: int, lines: int, tiles: int) -> tuple[int, int]:
    """In how many pieces to share rows of so many lines among tiles, and the lines of a piece.

    Whole rows, unless there are more tiles.
    """
    length = -(-lines // min(lines, max(1, tiles // rows)))
    return -(-lines // length), length


def share_of(extent: int, first: Index, count: int, whole: int) -> tuple[Any, int]:
    """First and number of the pieces, of ``extent``, that belong to a tile."""
    return tirx.truncdiv(int64(first) * extent, int64(whole)), -(-extent * count // whole)


def _each(count: int, body: Callable[[Any], None]) -> None:
    if count <= _MOST_UNROLLED:
        for index in range(count):
            body(int64(index))
        return
    with T.serial(int64(0), int64(count)) as index:
        body(index)


def lead(problem: Problem) -> int:
    """How many matrices ahead to ask; 0 where it does not pay."""
    if problem.is_generic:
        return 0
    size = operand_bytes(problem)
    if problem.multiply_adds * LINE_BYTES < _LEAST_WORK * size:
        return 0
    return -(-_LEAST_LEAD_BYTES // size)


def operand_bytes(problem: Problem) -> int:
    """Bytes of both operands of one product."""
    m, n, k = problem.extents()
    return (m * k + k * n) * ELEMENT_BYTES[problem.dtype]
