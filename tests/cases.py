"""The products that tests try: listed ones, and random ones for Hypothesis."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from hypothesis import strategies as st

from .oracle import Array, transpose

DTYPES = ("float32", "float16", "bfloat16", "float64")


def numpy_dtype(name: str) -> np.dtype[Any]:
    """The NumPy dtype; bfloat16 is one of a package that comes with TensorFlow."""
    if name == "bfloat16":
        import ml_dtypes

        return np.dtype(ml_dtypes.bfloat16)
    return np.dtype(name)


def random_array(shape: tuple[int, ...], dtype: str, seed: int) -> Array:
    """Random numbers in [-1, 1)."""
    rng = np.random.default_rng(seed)
    return (rng.random(shape, dtype=np.float32) * 2 - 1).astype(numpy_dtype(dtype))


def length_first(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape with the dimensions -3 and -2 in the other order."""
    return (*shape[:-3], shape[-2], shape[-3], shape[-1])


@dataclass(frozen=True)
class Case:
    """One product.

    Attributes
    ----------
    lhs, rhs
        Shapes of the operands as they are stored.
    adj_x, adj_y
        Whether the matrices of an operand are stored transposed.
    a_length_first, b_length_first
        Whether the dimensions -3 and -2 of an operand are stored in the other order.
    addend
        Its shape, or None without one.
    scale
        What the product is multiplied by.
    dtype
        One of `DTYPES`.
    """

    lhs: tuple[int, ...]
    rhs: tuple[int, ...]
    adj_x: bool = False
    adj_y: bool = False
    a_length_first: bool = False
    b_length_first: bool = False
    addend: tuple[int, ...] | None = None
    scale: float = 1.0
    dtype: str = "float32"

    def operands(self, seed: int = 0) -> tuple[Array, Array]:
        """Random operands in [-1, 1)."""
        lhs = random_array(self.lhs, self.dtype, 2 * seed)
        return lhs, random_array(self.rhs, self.dtype, 2 * seed + 1)

    def random_addend(self, seed: int = 0) -> Array | None:
        """A random addend in [-1, 1)."""
        if self.addend is None:
            return None
        return random_array(self.addend, self.dtype, 1000 + seed)

    def matrices(self, lhs: Array, rhs: Array) -> tuple[Array, Array]:
        """The operands as ``[..., M, K]`` and ``[..., K, N]``."""
        if self.a_length_first:
            lhs = np.swapaxes(lhs, -3, -2)
        if self.b_length_first:
            rhs = np.swapaxes(rhs, -3, -2)
        return transpose(lhs) if self.adj_x else lhs, transpose(rhs) if self.adj_y else rhs

    @property
    def output(self) -> tuple[int, ...]:
        """The shape of the product, ``[..., M, N]``, without the addend."""
        lhs, rhs = self.matrices(np.empty(self.lhs, "?"), np.empty(self.rhs, "?"))
        batch = np.broadcast_shapes(lhs.shape[:-2], rhs.shape[:-2])
        return (*batch, lhs.shape[-2], rhs.shape[-1])

    def __str__(self) -> str:
        lhs, rhs = ("x".join(map(str, shape)) for shape in (self.lhs, self.rhs))
        text = f"{lhs}{'L' * self.a_length_first}{'T' * self.adj_x}"
        text += f"-{rhs}{'L' * self.b_length_first}{'T' * self.adj_y}"
        if self.addend is not None:
            text += f"-plus-{'x'.join(map(str, self.addend))}"
        text += f"-times-{self.scale:g}" if self.scale != 1 else ""
        return text + (f"-{self.dtype}" if self.dtype != "float32" else "")


def product(
    batch: tuple[int, ...],
    m: int,
    n: int,
    k: int,
    adj_x: bool = False,
    adj_y: bool = False,
    lhs_batch: tuple[int, ...] | None = None,
    rhs_batch: tuple[int, ...] | None = None,
    **others: Any,
) -> Case:
    """The case of these extents; an operand's own batch dimensions may differ from ``batch``."""
    lhs = ((*batch,) if lhs_batch is None else lhs_batch) + ((k, m) if adj_x else (m, k))
    rhs = ((*batch,) if rhs_batch is None else rhs_batch) + ((n, k) if adj_y else (k, n))
    if others.get("a_length_first"):
        lhs = length_first(lhs)
    if others.get("b_length_first"):
        rhs = length_first(rhs)
    return Case(lhs, rhs, adj_x, adj_y, **others)


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


def layouts() -> Iterator[Case]:
    """Operands whose heads and lengths are stored in the other order, alone and together."""
    orders = ((True, False), (False, True), (True, True))
    for (adj_x, adj_y), (a, b) in itertools.product(ADJOINTS, orders):
        both: dict[str, Any] = {"a_length_first": a, "b_length_first": b}
        yield product((2, 3), 5, 7, 4, adj_x, adj_y, **both)
        yield product((3,), 1, 17, 64, adj_x, adj_y, **both)
        yield product((2, 3), 17, 1, 5, adj_x, adj_y, **both)
        yield product((2, 2, 3), 5, 7, 1, adj_x, adj_y, **both)
        yield product((), 5, 7, 4, adj_x, adj_y, (2, 1), (1, 3), **both)
        yield product((), 5, 7, 4, adj_x, adj_y, (3,), (2, 3), **both)
    yield product((2, 3), 5, 7, 4, rhs_batch=(), a_length_first=True)
    yield product((2, 3), 5, 7, 4, lhs_batch=(), b_length_first=True, adj_y=True)


def addends() -> Iterator[Case]:
    """Biases and masks of every kind, within the product and enlarging it."""
    within = ((), (1,), (7,), (5, 1), (5, 7), (3, 1, 7), (2, 1, 1, 7), (2, 1, 5, 7), (1, 3, 5, 1))
    for shape in (*within, (2, 3, 5, 7), (1, 1, 1, 1)):
        for scale in (1.0, 0.125, -1 / 3):
            yield product((2, 3), 5, 7, 4, addend=shape, scale=scale)
    for a, b in ((True, False), (True, True)):
        both: dict[str, Any] = {"a_length_first": a, "b_length_first": b}
        yield product((2, 3), 5, 7, 4, addend=(2, 1, 5, 7), **both)
        yield product((2, 3), 5, 7, 4, adj_x=True, adj_y=True, addend=(3, 1, 1), **both)
    for lhs, rhs in (((), (2, 3)), ((2, 1), (1, 3)), ((2, 3), (3,))):
        yield product((), 5, 7, 4, lhs_batch=lhs, rhs_batch=rhs, addend=(2, 1, 5, 7))
        yield product((), 5, 7, 4, lhs_batch=lhs, rhs_batch=rhs, addend=(3, 5, 1))
    # Enlarging: N, M, both, a batch dimension, new ones, several at once.
    yield Case((5, 3), (3, 1), addend=(1, 4))
    yield Case((1, 3), (3, 5), addend=(4, 1))
    yield Case((1, 3), (3, 1), addend=(4, 6), scale=0.5)
    yield Case((2, 5, 3), (2, 3, 1), addend=(6, 1, 1, 4))
    yield Case((1, 5, 3), (3, 4), addend=(6, 1, 1))
    yield Case((5, 3), (3, 4), addend=(2, 6, 5, 4), scale=-2.0)
    yield Case((2, 1, 1, 3), (1, 3, 3, 7), addend=(4, 1, 1, 5, 7))
    yield Case((2, 5, 1, 3), (3, 7), a_length_first=True, addend=(2, 6, 5, 7))
    # More dimensions than the dispatcher takes once the addend keeps them apart.
    yield Case((2,) * 9 + (3, 4), (4, 5), addend=(2, 1) * 4 + (2, 3, 5))


def without_terms() -> Iterator[Case]:
    """K = 0 and empty results, with addends that do and do not enlarge them."""
    yield Case((2, 3, 0), (2, 0, 4), addend=(4,))
    yield Case((2, 3, 0), (2, 0, 1), addend=(3, 4), scale=2.0)
    yield Case((3, 0), (0, 4), addend=(2, 1, 4))
    yield Case((1, 3, 0), (0, 4), addend=(0, 1, 1))
    yield Case((2, 3, 5), (5, 1), addend=(0,))
    yield Case((0, 3, 4), (4, 5), addend=(5,))
    yield Case((2, 0, 4), (4, 5), addend=(1, 5))
    yield Case((2, 3, 0), (2, 4, 0), adj_y=True, scale=-3.0)
    yield Case((2, 3, 2, 0), (2, 4, 2, 0), False, True, True, True, addend=(3, 4))


def listed() -> list[Case]:
    """Products alone, row-major or adjoint, each once."""
    groups = (attention(), odd_extents(), ranks(), broadcast(), empty())
    cases = [case for group in groups for case in group]
    return list(dict.fromkeys([*cases, many_alternating_batches()]))


def listed_family() -> list[Case]:
    """Those that need more than the product: layouts, scales, addends; each once."""
    groups = (layouts(), addends(), without_terms())
    return list(dict.fromkeys(case for group in groups for case in group))


def in_dtypes(cases: Iterable[Case]) -> list[Case]:
    """Each of them in every dtype."""
    return [replace(case, dtype=dtype) for case in cases for dtype in DTYPES]


@st.composite
def random_cases(draw: st.DrawFn, least: int = 0, with_addend: bool | None = None) -> Case:
    """Ranks 2 to 6, batches broadcast or missing, layouts, scales, addends, dtypes at random.

    ``least`` is the smallest extent. ``with_addend`` None draws whether there is one.
    """
    extent = st.one_of(st.integers(least, 9), st.sampled_from((15, 16, 17, 31, 33)))
    m, n, k = draw(extent), draw(extent), draw(extent)
    batch = draw(st.lists(st.integers(least, 4), max_size=4))

    def own(shape: list[int]) -> tuple[int, ...]:
        kept = shape[draw(st.integers(0, len(shape))) :]
        return tuple(1 if draw(st.booleans()) else d for d in kept)

    lhs_batch, rhs_batch = own(batch), own(batch)
    case = product(
        (),
        m,
        n,
        k,
        draw(st.booleans()),
        draw(st.booleans()),
        lhs_batch,
        rhs_batch,
        a_length_first=bool(lhs_batch) and draw(st.booleans()),
        b_length_first=bool(rhs_batch) and draw(st.booleans()),
        scale=draw(st.sampled_from((1.0, 1.0, 0.125, -1 / 3, 0.0, 1e-3))),
        dtype=draw(st.sampled_from(DTYPES)),
    )
    if not (draw(st.booleans()) if with_addend is None else with_addend):
        return case
    # Dimensions of 1 that the addend enlarges, and new ones before them.
    larger = [draw(st.sampled_from((1, 1, 2, 5))) if d == 1 else d for d in case.output]
    if len(larger) < 5:
        larger = draw(st.lists(st.integers(max(least, 1), 3), max_size=1)) + larger
    return replace(case, addend=own(larger))


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

LAYOUT_MISMATCHES = (
    Case((3, 4), (2, 4, 5), a_length_first=True),
    Case((2, 3, 4), (4, 5), b_length_first=True),
    Case((2, 3, 4), (2, 4, 5), a_length_first=True),
    Case((2, 3, 5, 4), (2, 5, 3, 6), b_length_first=True),
    Case((3, 2, 4), (4, 2, 5), True, False, True, True),
)
"""Operands that cannot be multiplied in the layout they are said to have."""

ADDEND_MISMATCHES = (
    Case((2, 3, 4), (4, 5), addend=(4,)),
    Case((2, 3, 4), (4, 5), addend=(2, 1)),
    Case((2, 3, 4), (4, 5), addend=(3, 1, 1)),
    Case((3, 4), (4, 5), addend=(7, 3, 4)),
    Case((3, 0), (0, 5), addend=(0,)),
)
"""Addends that cannot be broadcast against the product."""
