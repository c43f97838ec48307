"""The oracle check of one kernel, wherever its memory is. Needs NumPy alone.

Fresh random operands each time, float64 as the oracle, and memory around every row set so that a
wrong access shows: the output is poisoned with NaN, gaps between rows of the operands and what
follows them hold NaN, those of the output a sentinel that must survive.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from .arguments import NOWHERE, Place, kernel_arguments
from .elements import (
    ADD_COLUMN,
    ADD_MATRIX,
    ADD_NOTHING,
    COMPUTE_DTYPES,
    ELEMENT_BYTES,
    WORKSPACE_ALIGNMENT,
)
from .problem import Problem

_SENTINEL = -12345.0

_UNIT_ROUNDOFF = {
    "float64": 2.0**-53,
    "float32": 2.0**-24,
    "float16": 2.0**-11,
    "bfloat16": 2.0**-8,
}
_SUBNORMAL_STEP = {
    "float64": 2.0**-1074,
    "float32": 2.0**-149,
    "float16": 2.0**-24,
    "bfloat16": 2.0**-133,
}

GENERIC_EXTENTS = (
    (1, 1, 1),
    (1, 17, 128),
    (17, 17, 64),
    (5, 7, 33),
    (7, 1, 9),
    (13, 66, 5),
    (3, 31, 0),
    (33, 130, 17),
    (12, 68, 48),
)


@dataclass(frozen=True)
class Layout:
    """How the operands of a check lie in memory, and what follows the product.

    Attributes
    ----------
    batch, heads
        Numbers of matrices.
    gap
        Elements between neighbouring rows.
    broadcast_lhs, broadcast_rhs
        Whether all heads share one matrix.
    split
        The batch range is computed in two calls that meet here.
    scale
        What the product is multiplied by.
    addend
        ``""``, ``"matrix"``, ``"row"`` (shared by all rows and heads) or ``"column"``.
    """

    batch: int
    heads: int
    gap: int = 0
    broadcast_lhs: bool = False
    broadcast_rhs: bool = False
    split: int = 0
    scale: float = 1.0
    addend: str = ""


# Those with gaps come first: they tell what a wrong kernel does. Without gaps it ends the process
# when it leaves its operands.
LAYOUTS = (
    Layout(batch=1, heads=3, gap=5, broadcast_rhs=True, scale=0.375, addend="matrix"),
    Layout(batch=2, heads=1, gap=8, broadcast_lhs=True, split=1, scale=-1.5, addend="column"),
    Layout(batch=2, heads=2, split=3),
    Layout(batch=1, heads=2, addend="row"),
)


class Block(Protocol):
    """Memory of one operand, seen as arrays of this process.

    Attributes
    ----------
    array
        Of the shape that was asked for, contiguous.
    behind
        What follows it, one dimension; may be empty.
    address
        Where kernels find ``array``.
    """

    array: npt.NDArray[Any]
    behind: npt.NDArray[Any]
    address: int

    def send(self) -> None:
        """Let kernels see what the arrays hold."""

    def fetch(self) -> None:
        """Let the arrays hold what kernels wrote."""


class Memory(Protocol):
    """Where the operands of kernels are."""

    def allocate(self, shape: Sequence[int], dtype: npt.DTypeLike, *, gaps: bool) -> Block:
        """Memory for an operand, whose rows have gaps between them or not.

        Whatever a kernel does behind an operand with gaps is told by ``behind``; where there are
        none, it may end the process instead.
        """

    def wait(self) -> None:
        """Return when kernels called so far are done; raise what went wrong with them."""


def check_kernel(
    function: Callable[..., object], problem: Problem, workspace_bytes: int, memory: Memory
) -> str:
    """What is wrong with a kernel, ``""`` if nothing is.

    Parameters
    ----------
    function
        Takes the arguments of a kernel.
    problem
        What it should compute.
    workspace_bytes
        Scratch memory that it needs, of this process.
    memory
        Where its operands shall be.
    """
    seed = int(np.random.SeedSequence().generate_state(1)[0])
    rng = np.random.default_rng(seed)
    for m, n, k in GENERIC_EXTENTS if problem.is_generic else [problem.extents()]:
        for layout in LAYOUTS:
            fault = check_layout(function, problem, (m, n, k), layout, workspace_bytes, memory, rng)
            if fault:
                return f"{fault} at {m}x{n}x{k}, {layout}, seed {seed}"
    return ""


def check_layout(
    function: Callable[..., object],
    problem: Problem,
    extents: tuple[int, int, int],
    layout: Layout,
    workspace_bytes: int,
    memory: Memory,
    rng: np.random.Generator,
) -> str:
    """As :func:`check_kernel`, for one layout and given extents."""
    m, n, k = extents
    heads = layout.heads
    lhs_heads = 1 if layout.broadcast_lhs else heads
    rhs_heads = 1 if layout.broadcast_rhs else heads
    make = partial(_Operand, memory, problem.dtype, layout)
    lhs = make(lhs_heads, (m, k), transposed=problem.lhs == "m")
    rhs = make(rhs_heads, (k, n), transposed=problem.rhs == "k")
    out = make(heads, (m, n))
    addend = _addend(make, layout, m, n)
    for operand in (lhs, rhs, addend):
        operand.fill(rng)
    out.poison()
    workspace = np.full(workspace_bytes + WORKSPACE_ALIGNMENT, 0xFF, np.uint8)
    aligned = -workspace.ctypes.data % WORKSPACE_ALIGNMENT + workspace.ctypes.data
    kind = {"": ADD_NOTHING, "column": ADD_COLUMN}.get(layout.addend, ADD_MATRIX)
    for begin, end in _ranges(layout.batch * heads, layout.split):
        function(
            *kernel_arguments(
                lhs.place,
                rhs.place,
                out.place,
                heads=heads,
                begin=begin,
                end=end,
                addend=addend.place if layout.addend else NOWHERE,
                addend_kind=kind,
                scale=layout.scale,
                workspace=aligned if workspace_bytes else 0,
                extents=extents if problem.is_generic else (),
            )
        )
    memory.wait()
    out.fetch()
    a, b, c = lhs.values(), rhs.values(), addend.values()
    expected = layout.scale * np.matmul(a, b)
    magnitude = abs(layout.scale) * np.matmul(np.abs(a), np.abs(b))
    if layout.addend:
        expected = expected + c
        magnitude = magnitude + np.abs(c)
    bound = error_bound(problem.dtype, k, magnitude, expected)
    error = np.abs(out.values() - expected)
    if not np.all(error <= bound):
        wrong = int(np.count_nonzero(~(error <= bound)))
        return f"{wrong} of {error.size} results wrong (largest error {np.nanmax(error):.3g})"
    if not out.sentinel_survives():
        return "wrote outside its rows"
    return ""


def error_bound(
    dtype: str, k: int, magnitude: npt.NDArray[Any], expected: npt.NDArray[Any]
) -> npt.NDArray[Any]:
    """How far a right result may be from the exact one.

    The bound of any order of summation (Higham, "Accuracy and Stability of Numerical Algorithms",
    2nd edition, section 3.1), for K products, a scale and an addend, and the rounding of the
    result.

    Parameters
    ----------
    dtype
        Of operands and result.
    k
        Number of products in a sum.
    magnitude
        The exact result for the absolute values of operands, scale and addend.
    expected
        The exact result.
    """
    rounding: npt.NDArray[Any] = (
        1.01 * (k + 2) * _UNIT_ROUNDOFF[COMPUTE_DTYPES[dtype]] * magnitude
        + _UNIT_ROUNDOFF[dtype] * np.abs(expected)
        + _SUBNORMAL_STEP[dtype]
    )
    return rounding


def _addend(make: Callable[..., _Operand], layout: Layout, m: int, n: int) -> _Operand:
    if layout.addend == "row":
        operand = make(1, (1, n))
        operand.strides = (operand.strides[0], 0, 0)
        return operand
    return make(layout.heads, (m, 1 if layout.addend == "column" else n))


def _ranges(total: int, split: int) -> Iterator[tuple[int, int]]:
    if split:
        yield 0, split
    yield split, total


class _Operand:
    """Matrices [batch, heads, rows, columns] in memory with gaps between rows.

    Attributes
    ----------
    strides
        As a kernel takes them: batch, head, and the dimension that is not contiguous.
    """

    strides: tuple[int, int, int]

    def __init__(
        self,
        memory: Memory,
        dtype: str,
        layout: Layout,
        heads: int,
        shape: tuple[int, int],
        *,
        transposed: bool = False,
    ) -> None:
        outer, inner = shape[::-1] if transposed else shape
        row = inner + layout.gap
        self._dtype = dtype
        self._transposed = transposed
        # Heads lie inside rows, as in [batch, length, heads, depth], when there are gaps.
        order = (0, 2, 1, 3) if layout.gap else (0, 1, 2, 3)
        extents = (layout.batch, heads, outer, row)
        shape_in_memory = [extents[i] for i in order]
        self._block = memory.allocate(shape_in_memory, storage(dtype), gaps=bool(layout.gap))
        whole = self._block.array.transpose(order)
        self._matrices, self._gaps = whole[..., :inner], whole[..., inner:]
        strides = [stride // ELEMENT_BYTES[dtype] for stride in whole.strides]
        self.strides = (strides[0], 0 if heads < layout.heads else strides[1], strides[2])

    @property
    def place(self) -> Place:
        """As a kernel takes it."""
        return Place(self._block.address, self.strides)

    def fill(self, rng: np.random.Generator) -> None:
        """Random values, with NaN around them: who reads those spoils the result."""
        values = rng.standard_normal(self._matrices.shape)
        self._matrices[...] = encode(values, self._dtype)
        for outside in (self._gaps, self._block.behind):
            outside[...] = encode(np.array(np.nan), self._dtype)
        self._block.send()

    def poison(self) -> None:
        """NaN where results belong, a sentinel around them."""
        self._matrices[...] = encode(np.array(np.nan), self._dtype)
        for outside in (self._gaps, self._block.behind):
            outside[...] = encode(np.array(_SENTINEL), self._dtype)
        self._block.send()

    def fetch(self) -> None:
        """Take over what a kernel wrote."""
        self._block.fetch()

    def values(self) -> npt.NDArray[np.floating[Any]]:
        """The matrices, [batch, heads, rows, columns]."""
        values = decode(self._matrices, self._dtype)
        if self._dtype == "float64":
            # The oracle of float64 has to be better than float64.
            values = values.astype(np.longdouble)
        return values.swapaxes(-1, -2) if self._transposed else values

    def sentinel_survives(self) -> bool:
        """Whether memory outside the matrices is as :meth:`poison` left it."""
        sentinel = encode(np.array(_SENTINEL), self._dtype)
        outside = (self._gaps, self._block.behind)
        return all(bool(np.all(values == sentinel)) for values in outside)


def storage(dtype: str) -> npt.DTypeLike:
    """What NumPy keeps elements of a type in: bfloat16, which it lacks, as its bits."""
    return np.uint16 if dtype == "bfloat16" else np.dtype(dtype)


def encode(values: npt.NDArray[np.floating[Any]], dtype: str) -> npt.NDArray[Any]:
    """``values`` as they are stored; bfloat16 is cut off."""
    if dtype != "bfloat16":
        return values.astype(dtype)
    return (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)


def decode(stored: npt.NDArray[Any], dtype: str) -> npt.NDArray[np.float64]:
    """The inverse of :func:`encode`."""
    if dtype != "bfloat16":
        return stored.astype(np.float64)
    return (stored.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
