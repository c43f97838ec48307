"""The oracle check that a kernel passes before it enters a manifest.

Fresh random operands each time, float64 NumPy as the oracle, and memory around every row set so
that a wrong access shows: the output is poisoned with NaN, gaps between rows of the operands and
what follows them hold NaN, those of the output a sentinel that must survive, and where there are no
gaps memory ends behind the last row.
"""

from __future__ import annotations

import ctypes
import math
import mmap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import tvm_ffi

from .elements import (
    ADD_COLUMN,
    ADD_MATRIX,
    ADD_NOTHING,
    COMPUTE_DTYPES,
    ELEMENT_BYTES,
    WORKSPACE_ALIGNMENT,
)
from .problem import Problem
from .targets import request_tiles

_MISSING = "symbol missing from the image"

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

_GENERIC_EXTENTS = (
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


@dataclass(frozen=True)
class Memory:
    """What a kernel is called with in a check: all that it may read or write, and what is behind.

    Attributes
    ----------
    lhs, rhs, addend, out
        Flat arrays, which are overwritten; ``addend`` is None without one.
    """

    lhs: npt.NDArray[Any]
    rhs: npt.NDArray[Any]
    addend: npt.NDArray[Any] | None
    out: npt.NDArray[Any]


Call = Callable[[Memory, Sequence[tuple[Any, ...]]], None]
"""Calls a kernel with the same memory and each of several lists of further arguments."""


# Those with gaps come first: they tell what a wrong kernel does. Without gaps it ends the process
# when it leaves its operands.
_LAYOUTS = (
    Layout(batch=1, heads=3, gap=5, broadcast_rhs=True, scale=0.375, addend="matrix"),
    Layout(batch=2, heads=1, gap=8, broadcast_lhs=True, split=1, scale=-1.5, addend="column"),
    Layout(batch=2, heads=2, split=3),
    Layout(batch=1, heads=2, addend="row"),
)


def verify_image(image: Path, entries: list[tuple[str, Problem, int]]) -> list[str]:
    """Check kernels of an image against the oracle.

    Parameters
    ----------
    image
        A linked image.
    entries
        Symbol, problem and workspace size in bytes of each kernel.

    Returns
    -------
    list of str
        What is wrong with each kernel, ``""`` where nothing is.
    """
    request_tiles()
    module = tvm_ffi.load_module(str(image.resolve()))
    return [verify_kernel(module, *entry) for entry in entries]


def check_layout(
    image: Path, symbol: str, problem: Problem, workspace_bytes: int, layout: Layout
) -> str:
    """As :func:`verify_image` for one kernel with fixed extents and one layout."""
    request_tiles()
    function = tvm_ffi.load_module(str(image.resolve())).get_function(symbol)
    rng = np.random.default_rng()
    call = partial(_call_here, function, workspace_bytes)
    return _check(call, problem, problem.extents(), layout, rng)


def missing_symbols(image: Path, symbols: list[str]) -> list[str]:
    """What is wrong with each kernel, without running it: "" if it is there."""
    module = tvm_ffi.load_module(str(image.resolve()))
    return ["" if _function(module, symbol) else _MISSING for symbol in symbols]


def _function(module: Any, symbol: str) -> Any:
    try:
        return module.get_function(symbol)
    except AttributeError:
        return None


def verify_kernel(module: Any, symbol: str, problem: Problem, workspace_bytes: int) -> str:
    """What is wrong with one kernel of a module, ``""`` if nothing is."""
    function = _function(module, symbol)
    if function is None:
        return _MISSING
    return verify_call(partial(_call_here, function, workspace_bytes), problem)


def verify_call(call: Call, problem: Problem, *, guarded: bool = True) -> str:
    """What is wrong with a kernel that is called in some way, ``""`` if nothing is.

    Parameters
    ----------
    call
        Calls the kernel.
    problem
        What it computes.
    guarded
        Whether ``call`` uses the memory where it lies, so that it may end behind the last row.
    """
    seed = int(np.random.SeedSequence().generate_state(1)[0])
    rng = np.random.default_rng(seed)
    for m, n, k in _GENERIC_EXTENTS if problem.is_generic else [problem.extents()]:
        for layout in _LAYOUTS:
            fault = _check(call, problem, (m, n, k), layout, rng, guarded=guarded)
            if fault:
                return f"{fault} at {m}x{n}x{k}, {layout}, seed {seed}"
    return ""


def _call_here(
    function: Any, workspace_bytes: int, memory: Memory, calls: Sequence[tuple[Any, ...]]
) -> None:
    workspace = np.full(workspace_bytes + WORKSPACE_ALIGNMENT, 0xFF, np.uint8)
    aligned = -workspace.ctypes.data % WORKSPACE_ALIGNMENT + workspace.ctypes.data
    operands = (memory.lhs, memory.rhs, memory.addend, memory.out)
    pointers = [ctypes.c_void_p(None if o is None else o.ctypes.data) for o in operands]
    pointers.append(ctypes.c_void_p(aligned if workspace_bytes else None))
    for arguments in calls:
        function(*pointers, *arguments)


def _check(
    call: Call,
    problem: Problem,
    extents: tuple[int, int, int],
    layout: Layout,
    rng: np.random.Generator,
    *,
    guarded: bool = True,
) -> str:
    m, n, k = extents
    heads = layout.heads
    lhs_heads = 1 if layout.broadcast_lhs else heads
    rhs_heads = 1 if layout.broadcast_rhs else heads
    operand = partial(_Operand, problem.dtype, layout, guarded=guarded)
    lhs = operand(lhs_heads, (m, k), transposed=problem.lhs == "m")
    rhs = operand(rhs_heads, (k, n), transposed=problem.rhs == "k")
    out = operand(heads, (m, n))
    addend = _addend(operand, layout, m, n)
    for given in (lhs, rhs, addend):
        given.fill(rng)
    out.poison()
    kind = {"": ADD_NOTHING, "column": ADD_COLUMN}.get(layout.addend, ADD_MATRIX)
    strides = (*lhs.strides, *rhs.strides, *addend.strides, kind, *out.strides)
    last = (layout.scale, *(extents if problem.is_generic else ()))
    call(
        Memory(lhs.whole, rhs.whole, addend.whole if layout.addend else None, out.whole),
        [(*span, heads, *strides, *last) for span in _ranges(layout.batch * heads, layout.split)],
    )
    a, b, c = lhs.values(), rhs.values(), addend.values()
    expected = layout.scale * np.matmul(a, b)
    magnitude = abs(layout.scale) * np.matmul(np.abs(a), np.abs(b))
    if layout.addend:
        expected = expected + c
        magnitude = magnitude + np.abs(c)
    # The bound of any order of summation (Higham, "Accuracy and Stability of Numerical
    # Algorithms", 2nd edition, section 3.1), for K products, a scale and an addend, and the
    # rounding of the result.
    bound = (
        1.01 * (k + 2) * _UNIT_ROUNDOFF[COMPUTE_DTYPES[problem.dtype]] * magnitude
        + _UNIT_ROUNDOFF[problem.dtype] * np.abs(expected)
        + _SUBNORMAL_STEP[problem.dtype]
    )
    error = np.abs(out.values() - expected)
    if not np.all(error <= bound):
        wrong = int(np.count_nonzero(~(error <= bound)))
        return f"{wrong} of {error.size} results wrong (largest error {np.nanmax(error):.3g})"
    if not out.sentinel_survives():
        return "wrote outside its rows"
    return ""


def _addend(operand: Callable[..., _Operand], layout: Layout, m: int, n: int) -> _Operand:
    if layout.addend == "row":
        row = operand(1, (1, n))
        row.strides = (row.strides[0], 0, 0)
        return row
    return operand(layout.heads, (m, 1 if layout.addend == "column" else n))


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
    whole
        The memory with what is behind it, flat.
    """

    strides: tuple[int, int, int]
    whole: npt.NDArray[Any]

    def __init__(
        self,
        dtype: str,
        layout: Layout,
        heads: int,
        shape: tuple[int, int],
        *,
        guarded: bool = True,
        transposed: bool = False,
    ) -> None:
        outer, inner = shape[::-1] if transposed else shape
        row = inner + layout.gap
        self._dtype = dtype
        self._transposed = transposed
        # Heads lie inside rows, as in [batch, length, heads, depth], when there are gaps.
        order = (0, 2, 1, 3) if layout.gap else (0, 1, 2, 3)
        extents = (layout.batch, heads, outer, row)
        allocate = _guarded if guarded and not layout.gap else _followed
        lying = [extents[i] for i in order]
        self.whole = allocate(lying, _storage(dtype))
        size = math.prod(lying)
        self._behind = self.whole[size:]
        ordered = self.whole[:size].reshape(lying).transpose(order)
        self._matrices, self._gaps = ordered[..., :inner], ordered[..., inner:]
        strides = [stride // ELEMENT_BYTES[dtype] for stride in ordered.strides]
        self.strides = (strides[0], 0 if heads < layout.heads else strides[1], strides[2])

    def fill(self, rng: np.random.Generator) -> None:
        """Random values, with NaN around them: who reads those spoils the result."""
        values = rng.standard_normal(self._matrices.shape)
        self._matrices[...] = _encode(values, self._dtype)
        for outside in (self._gaps, self._behind):
            outside[...] = _encode(np.array(np.nan), self._dtype)

    def poison(self) -> None:
        """NaN where results belong, a sentinel around them."""
        self._matrices[...] = _encode(np.array(np.nan), self._dtype)
        for outside in (self._gaps, self._behind):
            outside[...] = _encode(np.array(_SENTINEL), self._dtype)

    def values(self) -> npt.NDArray[np.floating[Any]]:
        """The matrices, [batch, heads, rows, columns]."""
        values = _decode(self._matrices, self._dtype)
        if self._dtype == "float64":
            # The oracle of float64 has to be better than float64.
            values = values.astype(np.longdouble)
        return values.swapaxes(-1, -2) if self._transposed else values

    def sentinel_survives(self) -> bool:
        """Whether memory outside the matrices is as :meth:`poison` left it."""
        sentinel = _encode(np.array(_SENTINEL), self._dtype)
        return all(bool(np.all(outside == sentinel)) for outside in (self._gaps, self._behind))


def _followed(shape: list[int], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """Memory, and a row of every head and a page of memory that follows it."""
    behind = math.prod(shape[2:]) + mmap.PAGESIZE // np.dtype(dtype).itemsize
    return np.zeros(math.prod(shape) + behind, dtype)


def _guarded(shape: list[int], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """Memory and nothing: who reads or writes behind it ends the process."""
    size = math.prod(shape) * np.dtype(dtype).itemsize
    pages = -(-size // mmap.PAGESIZE) + 1
    memory = np.frombuffer(mmap.mmap(-1, pages * mmap.PAGESIZE), np.uint8)
    guard = memory[-mmap.PAGESIZE :]
    protection = 0  # PROT_NONE, which mmap of Python has no name for
    if ctypes.CDLL(None).mprotect(ctypes.c_void_p(guard.ctypes.data), mmap.PAGESIZE, protection):
        raise OSError("no memory that must not be touched: mprotect failed")
    end = (pages - 1) * mmap.PAGESIZE
    return memory[end - size : end].view(dtype)


def _storage(dtype: str) -> npt.DTypeLike:
    return np.uint16 if dtype == "bfloat16" else np.dtype(dtype)


def _encode(values: npt.NDArray[np.float64], dtype: str) -> npt.NDArray[Any]:
    """``values`` as they are stored; bfloat16, which NumPy lacks, as its bits, cut off."""
    if dtype != "bfloat16":
        return values.astype(dtype)
    return (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)


def _decode(stored: npt.NDArray[Any], dtype: str) -> npt.NDArray[np.float64]:
    if dtype != "bfloat16":
        return stored.astype(np.float64)
    return (stored.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
