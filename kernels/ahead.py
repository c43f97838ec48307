"""Prefetching of operands: those of a later matrix while one is computed.

Where the operands of a call do not stay in the caches, each matrix begins with misses that nothing
hides: a tile reads many rows at once, few lines of each, which is no pattern that processors
prefetch. So each tile asks for its share of the operands of a matrix further on in the batch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from tvm import tirx
from tvm.tirx.script.builder import ir as T

from .elements import ELEMENT_BYTES
from .problem import Problem
from .vectors import Index, View, int64

LINE_BYTES = 64

FAR_BYTES = 1 << 18
"""Operands of a call that are larger do not stay in a core's own caches."""

_LEAST_LEAD_BYTES = 1 << 13
"""How far ahead to ask, at least: a core goes on for some KiB while memory answers."""

_LEAST_WORK = 72
"""Multiply-adds to a line of operands. Kernels that do less read about as fast as prefetches are
issued, and mostly one row after the other, which the processor prefetches by itself."""

_MOST_UNROLLED = 8


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


@dataclass(frozen=True)
class Ahead:
    """Operands of a matrix further on in the batch.

    Attributes
    ----------
    operands
        What to ask for.
    wanted
        Whether to, at run time.
    """

    operands: tuple[Rows, ...]
    wanted: Any

    def prefetch(self, first: Index, count: int, whole: int) -> None:
        """Ask for the share of a tile.

        Parameters
        ----------
        first, count, whole
            Where the tile begins, and how much it is, of how much a matrix is, in any unit.
        """
        with T.If(self.wanted), T.Then():
            for rows in self.operands:
                start, share = share_of(rows.outer, first, count, whole)
                base = T.Bind(rows.first + start * rows.stride)
                _each(share, partial(_prefetch_row, rows, base))


def share_of(extent: int, first: Index, count: int, whole: int) -> tuple[Index, int]:
    """First and number of the rows, of ``extent``, that belong to a tile."""
    share = -(-extent * count // whole)
    if isinstance(first, int):
        return first * extent // whole, share
    return tirx.truncdiv(first * extent, int64(whole)), share


def _prefetch_row(rows: Rows, base: Any, row: Any) -> None:
    line = LINE_BYTES // ELEMENT_BYTES[rows.view.dtype]
    start = base + row * rows.stride
    _each(-(-rows.inner // line), lambda index: rows.view.prefetch(start + index * line))


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
