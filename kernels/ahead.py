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

FAR_BYTES = 1 << 16
"""Operands of the matrices ``[begin, end)`` of a call, from which on they are asked for. The op
calls a kernel for a quarter of a thread's share at a time, so that a thread computes four times as
much, which may lie anywhere. Asking costs next to nothing where that is a core's own cache."""

_LEAST_LEAD_BYTES = 1 << 13
"""How far ahead to ask, at least: a core goes on for some KiB while memory answers."""

_LEAST_WORK = 50
"""Multiply-adds to a line of operands. Kernels that do less read about as fast as prefetches are
issued, and mostly one row after the other, which the processor prefetches by itself."""

_MOST_UNROLLED = 8

_AT_ONCE = 8
"""Lines that are asked for at once, about. More wait for each other, and loads behind them: a core
has a dozen or two under way."""

_MOST_AT_ONCE = 32
"""What is not more is asked for at once: sharing it out costs more than it gains."""


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

    def joined(self) -> Rows:
        """All rows as one, where none lies apart from the others."""
        return Rows(self.view, self.first, self.stride, 1, self.outer * self.inner)


@dataclass(frozen=True)
class Turns:
    """A tile's share, in parts.

    Attributes
    ----------
    every
        Iterations of the tile's loop from one turn to the next, a power of two.
    ask
        ``ask(turn)`` asks for what belongs to a turn.
    """

    every: int
    ask: Callable[[Any], None]

    def at(self, iteration: Any) -> None:
        """Ask in iteration ``iteration``, if it is its turn."""
        if self.every == 1:
            self.ask(iteration)
        elif isinstance(iteration, tirx.IntImm):
            if iteration.value % self.every == 0:
                self.ask(iteration.value // self.every)
        else:
            with T.If(tirx.truncmod(iteration, int64(self.every)) == int64(0)), T.Then():
                self.ask(tirx.truncdiv(iteration, int64(self.every)))


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

    def over(self, first: Index, count: int, whole: int, iterations: int) -> Turns | None:
        """Ask for the share of a tile; in turns, over the iterations of its loop, if it is much.

        Parameters
        ----------
        first, count, whole
            As for :meth:`prefetch`.
        iterations
            Of the loop.

        Returns
        -------
        Turns or None
            What is left to ask for; None if all was asked for.
        """
        lines = self._lines(count, whole)
        if iterations == 1 or lines <= _MOST_AT_ONCE:
            self.prefetch(first, count, whole)
            return None
        every = max(1, iterations * _AT_ONCE // lines)
        every = 1 << (every.bit_length() - 1)
        number = -(-iterations // every)

        def ask(turn: Any) -> None:
            self.prefetch(int64(first) * number + turn * count, count, whole * number)

        return Turns(every, ask)

    def _lines(self, count: int, whole: int) -> int:
        return sum(rows.joined().lines for rows in self.operands) * count // whole

    def prefetch(self, first: Index, count: int, whole: int) -> None:
        """Ask for the share of a tile.

        Parameters
        ----------
        first, count, whole
            Where the tile begins, and how much it is, of how much a matrix is, in any unit.
        """
        with T.If(self.wanted), T.Then():
            for rows in self.operands:
                # Rows that nothing lies between are one, in which no line is counted twice.
                with T.If(rows.stride == int64(rows.inner)):
                    with T.Then():
                        _prefetch(rows.joined(), first, count, whole)
                    with T.Else():
                        _prefetch(rows, first, count, whole)


def _prefetch(rows: Rows, first: Index, count: int, whole: int) -> None:
    start, share = share_of(rows.outer * rows.lines, first, count, whole)
    start = T.Bind(start)

    def line(index: Any) -> None:
        row, column = int64(0), start + index
        if rows.outer > 1:
            row = tirx.truncdiv(column, int64(rows.lines))
            column = tirx.truncmod(column, int64(rows.lines))
        rows.view.prefetch(rows.first + row * rows.stride + column * rows.elements)

    _each(share, line)


def share_of(extent: int, first: Index, count: int, whole: int) -> tuple[Any, int]:
    """First and number of the lines, of ``extent``, that belong to a tile."""
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
