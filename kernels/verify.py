"""The oracle check that a kernel passes before it enters a manifest.

Fresh random operands each time, float64 NumPy as the oracle, and memory around every row set so
that a wrong access shows: the output is poisoned with NaN, gaps between rows of the operands hold
NaN, gaps between rows of the output hold a sentinel that must survive.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import tvm_ffi

from .compute import WORKSPACE_ALIGNMENT
from .problem import Problem

_SENTINEL = np.float32(-12345.0)
_UNIT_ROUNDOFF = 2.0**-24

_GENERIC_EXTENTS = (
    (1, 1, 1),
    (1, 17, 128),
    (17, 17, 64),
    (5, 7, 33),
    (7, 1, 9),
    (13, 66, 5),
    (3, 31, 0),
    (33, 130, 17),
)


@dataclass(frozen=True)
class Layout:
    """How the operands of a check lie in memory.

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
    """

    batch: int
    heads: int
    gap: int = 0
    broadcast_lhs: bool = False
    broadcast_rhs: bool = False
    split: int = 0


_LAYOUTS = (
    Layout(batch=2, heads=2, split=3),
    Layout(batch=1, heads=3, gap=5, broadcast_rhs=True),
    Layout(batch=2, heads=1, gap=3, broadcast_lhs=True, split=1),
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
    module = tvm_ffi.load_module(str(image.resolve()))
    return [_verify(module, *entry) for entry in entries]


def _verify(module: Any, symbol: str, problem: Problem, workspace_bytes: int) -> str:
    try:
        function = module.get_function(symbol)
    except AttributeError:
        return "symbol missing from the image"
    seed = int(np.random.SeedSequence().generate_state(1)[0])
    rng = np.random.default_rng(seed)
    for m, n, k in _GENERIC_EXTENTS if problem.is_generic else [problem.extents()]:
        for layout in _LAYOUTS:
            fault = _check(function, problem, (m, n, k), layout, workspace_bytes, rng)
            if fault:
                return f"{fault} at {m}x{n}x{k}, {layout}, seed {seed}"
    return ""


def _check(
    function: Any,
    problem: Problem,
    extents: tuple[int, int, int],
    layout: Layout,
    workspace_bytes: int,
    rng: np.random.Generator,
) -> str:
    m, n, k = extents
    lhs = _Operand.random(
        rng, layout, (m, k), transposed=problem.lhs == "m", shared=layout.broadcast_lhs
    )
    rhs = _Operand.random(
        rng, layout, (k, n), transposed=problem.rhs == "k", shared=layout.broadcast_rhs
    )
    out = _Operand.make(layout, (m, n), transposed=False, shared=False, gap_value=_SENTINEL)
    out.matrices[...] = np.nan
    workspace = np.full(workspace_bytes + WORKSPACE_ALIGNMENT, 0xFF, np.uint8)
    aligned = -workspace.ctypes.data % WORKSPACE_ALIGNMENT + workspace.ctypes.data
    total = layout.batch * layout.heads
    for begin, end in _ranges(total, layout.split):
        function(
            *(ctypes.c_void_p(o.matrices.ctypes.data) for o in (lhs, rhs, out)),
            ctypes.c_void_p(aligned if workspace_bytes else None),
            *(begin, end, layout.heads),
            *lhs.strides,
            *rhs.strides,
            *out.strides,
            *(extents if problem.is_generic else ()),
        )
    a = lhs.matrices.astype(np.float64)
    b = rhs.matrices.astype(np.float64)
    expected = np.matmul(a, b)
    # The bound of any order of summation: Higham, "Accuracy and Stability of Numerical
    # Algorithms", 2nd edition, section 3.1.
    bound = 1.01 * max(k, 1) * _UNIT_ROUNDOFF * np.matmul(np.abs(a), np.abs(b))
    error = np.abs(out.matrices - expected)
    if not np.all(error <= bound):
        wrong = int(np.count_nonzero(~(error <= bound)))
        return f"{wrong} of {error.size} results wrong (largest error {np.nanmax(error):.3g})"
    if not out.gaps_intact(_SENTINEL):
        return "wrote outside its rows"
    return ""


def _ranges(total: int, split: int) -> Iterator[tuple[int, int]]:
    if split:
        yield 0, split
    yield split, total


@dataclass(frozen=True)
class _Operand:
    """Matrices [batch, heads, rows, columns] as a view of memory with gaps."""

    memory: npt.NDArray[np.float32]
    matrices: npt.NDArray[np.float32]
    strides: tuple[int, int, int]

    @classmethod
    def make(
        cls,
        layout: Layout,
        shape: tuple[int, int],
        *,
        transposed: bool,
        shared: bool,
        gap_value: np.float32,
    ) -> _Operand:
        outer, inner = shape[::-1] if transposed else shape
        heads = 1 if shared else layout.heads
        # Heads lie inside rows, as in [batch, length, heads, depth], when there are gaps.
        row = inner + layout.gap
        if layout.gap:
            memory = np.full((layout.batch, outer, heads, row), gap_value, np.float32)
            matrices = memory.transpose(0, 2, 1, 3)[..., :inner]
        else:
            memory = np.full((layout.batch, heads, outer, row), gap_value, np.float32)
            matrices = memory[..., :inner]
        strides = tuple(s // 4 for s in matrices.strides)
        if shared:
            matrices = np.broadcast_to(matrices, (layout.batch, layout.heads, outer, inner))
            strides = (strides[0], 0, *strides[2:])
        if transposed:
            matrices = matrices.swapaxes(-1, -2)
        return cls(memory, matrices, (strides[0], strides[1], strides[2]))

    @classmethod
    def random(
        cls,
        rng: np.random.Generator,
        layout: Layout,
        shape: tuple[int, int],
        *,
        transposed: bool,
        shared: bool,
    ) -> _Operand:
        operand = cls.make(
            layout, shape, transposed=transposed, shared=shared, gap_value=np.float32(np.nan)
        )
        inside = ~_gap_mask(operand.memory, layout)
        operand.memory[inside] = rng.standard_normal(int(inside.sum()), np.float32)
        return operand

    def gaps_intact(self, gap_value: np.float32) -> bool:
        """Whether memory outside the matrices still holds ``gap_value``."""
        inside = self.matrices.shape[-1]
        return bool(np.all(self.memory[..., inside:] == gap_value))


def _gap_mask(memory: npt.NDArray[np.float32], layout: Layout) -> npt.NDArray[np.bool_]:
    mask = np.zeros(memory.shape, np.bool_)
    if layout.gap:
        mask[..., memory.shape[-1] - layout.gap :] = True
    return mask
