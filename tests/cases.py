"""The products that tests try: listed ones, and random ones for Hypothesis."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from hypothesis import strategies as st

from .oracle import Array


@dataclass(frozen=True)
class Case:
    """One product.

    Attributes
    ----------
    lhs, rhs
        Shapes of the operands as they are stored.
    adj_x, adj_y
        Whether the matrices of an operand are stored transposed.
    """

    lhs: tuple[int, ...]
    rhs: tuple[int, ...]
    adj_x: bool = False
    adj_y: bool = False

    def operands(self, seed: int = 0) -> tuple[Array, Array]:
        """Random float32 operands in [-1, 1)."""
        rng = np.random.default_rng(seed)
        lhs = rng.random(self.lhs, dtype=np.float32) * 2 - 1
        rhs = rng.random(self.rhs, dtype=np.float32) * 2 - 1
        return lhs, rhs

    def __str__(self) -> str:
        lhs, rhs = ("x".join(map(str, shape)) for shape in (self.lhs, self.rhs))
        return f"{lhs}{'T' if self.adj_x else ''}-{rhs}{'T' if self.adj_y else ''}"


def product(
    batch: tuple[int, ...],
    m: int,
    n: int,
    k: int,
    adj_x: bool = False,
    adj_y: bool = False,
    lhs_batch: tuple[int, ...] | None = None,
    rhs_batch: tuple[int, ...] | None = None,
) -> Case:
    """The case of these extents; an operand's own batch dimensions may differ from ``batch``."""
    lhs = (k, m) if adj_x else (m, k)
    rhs = (n, k) if adj_y else (k, n)
    return Case(
        ((*batch,) if lhs_batch is None else lhs_batch) + lhs,
        ((*batch,) if rhs_batch is None else rhs_batch) + rhs,
        adj_x,
        adj_y,
    )


ADJOINTS = ((False, False), (False, True), (True, False), (True, True))


def attention() -> Iterator[Case]:
    """Products of attention layers: one query, and lengths around vector widths."""
    for adj_x, adj_y in ADJOINTS:
        for m, n, k in ((1, 17, 128), (1, 17, 64), (17, 17, 64), (30, 64, 30), (32, 32, 64)):
            yield product((3, 2), m, n, k, adj_x, adj_y)


def odd_extents() -> Iterator[Case]:
    """Extents below, at and above a vector of 8 or 16, alone and together."""
    for adj_x, adj_y in ADJOINTS:
        for extent in (1, 2, 7, 8, 9, 15, 16, 17, 31, 33):
            yield product((2,), extent, 3, 5, adj_x, adj_y)
            yield product((2,), 3, extent, 5, adj_x, adj_y)
            yield product((2,), 3, 5, extent, adj_x, adj_y)
            yield product((2,), extent, extent, extent, adj_x, adj_y)


def ranks() -> Iterator[Case]:
    """Every rank from 2 to 12, with equal and with broadcast batches."""
    for rank in range(2, 13):
        batch = (2, 1, 3, 1, 1, 2, 1, 1, 1, 2)[: rank - 2]
        yield product(batch, 3, 4, 5)
        yield product(batch, 3, 4, 5, rhs_batch=())
        yield product(batch, 3, 4, 5, lhs_batch=(), adj_y=True)


def broadcast() -> Iterator[Case]:
    """Batches that differ; among them those on which stock reads or writes out of bounds."""
    yield Case((13, 1, 3, 4), (4, 16))
    yield Case((9, 1, 2, 3), (3, 3))
    for adj_x, adj_y in ADJOINTS:
        for lhs, rhs in (
            ((1,), (5,)),
            ((5,), (1,)),
            ((4, 1), (1, 3)),
            ((2, 3), (3,)),
            ((3,), (2, 3)),
            ((2, 1, 3), (4, 1)),
            ((2, 3, 1, 2), (1, 3, 4, 1)),
            ((13, 1), (1, 1)),
        ):
            yield product((), 3, 6, 5, adj_x, adj_y, lhs_batch=lhs, rhs_batch=rhs)


def many_alternating_batches() -> Case:
    """Ten batch dimensions of which no two merge: more than the dispatcher takes."""
    return Case((2, 1) * 5 + (2, 3), (1, 2) * 5 + (3, 2))


def empty() -> Iterator[Case]:
    """Products without elements, and sums without terms."""
    yield Case((2, 3, 0), (2, 0, 4))
    for adj_x, adj_y in ADJOINTS:
        for m, n, k in ((0, 3, 4), (3, 0, 4), (3, 4, 0), (0, 0, 3), (0, 0, 0)):
            yield product((2,), m, n, k, adj_x, adj_y)
    yield product((0,), 3, 4, 5)
    yield product((0,), 3, 4, 5, rhs_batch=())
    yield product((0, 3), 3, 4, 5, rhs_batch=(1, 1))
    yield product((), 3, 4, 0)


def listed() -> list[Case]:
    """All of them, each once."""
    groups = (attention(), odd_extents(), ranks(), broadcast(), empty())
    cases = [case for group in groups for case in group]
    return list(dict.fromkeys([*cases, many_alternating_batches()]))


@st.composite
def random_cases(draw: st.DrawFn, least: int = 0) -> Case:
    """Ranks 2 to 5, each operand's batch dimensions broadcast or missing at random.

    ``least`` is the smallest extent.
    """
    extent = st.one_of(st.integers(least, 9), st.sampled_from((15, 16, 17, 31, 33)))
    m, n, k = draw(extent), draw(extent), draw(extent)
    batch = draw(st.lists(st.integers(least, 4), max_size=3))

    def own() -> tuple[int, ...]:
        kept = batch[draw(st.integers(0, len(batch))) :]
        return tuple(1 if draw(st.booleans()) else d for d in kept)

    adj_x, adj_y = draw(st.booleans()), draw(st.booleans())
    return product((), m, n, k, adj_x, adj_y, lhs_batch=own(), rhs_batch=own())


MISMATCHES = (
    Case((2, 1, 4), (2, 6, 1)),
    Case((3, 4), (3, 4)),
    Case((3, 4), (4, 5), adj_x=True),
    Case((3, 4), (4, 5), adj_y=True),
    Case((2, 3, 4), (3, 4, 5)),
    Case((2, 1, 3, 4), (3, 2, 4, 5)),
    Case((4,), (4, 4)),
    Case((4, 4), (4,)),
    Case((), (4, 4)),
    Case((0, 3), (4, 0)),
)
"""Operands that cannot be multiplied, by the rules of ``BatchMatMulV2``."""
