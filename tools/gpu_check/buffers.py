"""Operands of a product on the GPU, once or in many copies, and what the result should be."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tf_tvm_ops.kernels.arguments import Place
from tf_tvm_ops.kernels.elements import ELEMENT_BYTES
from tf_tvm_ops.kernels.oracle import decode, encode, error_bound, storage
from tf_tvm_ops.kernels.runtime import cuda
from tf_tvm_ops.tools.gpu_check.cases import MASK, TRANSPOSE, Case

SCALE = 0.125
"""Of the products that are masked: a right order of magnitude, and exact in every type."""

_UNIT = 256
_NAN_BYTE = 0xFF  # as every byte of a float, of any type, it makes a NaN
_MAX_SETS = 2048


class _Copies:
    """An operand in memory of the GPU, ``sets`` times."""

    def __init__(self, context: cuda.Context, shape: Sequence[int], dtype: str, sets: int) -> None:
        self.shape = tuple(shape)
        size = int(np.prod(self.shape)) * ELEMENT_BYTES[dtype]
        self.step = -(-size // _UNIT) * _UNIT
        self.memory = context.allocate(self.step * sets)

    def address(self, index: int) -> int:
        return self.memory.address + index * self.step


class Buffers:
    """What the ways to compute a case read and write: the same memory for all of them.

    Parameters
    ----------
    context
        Of the GPU.
    case
        The product.
    footprint
        Operands and results are there so often that all together are that many bytes at least;
        0 for once.
    """

    def __init__(self, context: cuda.Context, case: Case, footprint: int) -> None:
        self.case = case
        m, n, k = case.problem.extents()
        self.batch, self.heads, self.m, self.n, self.k = case.batch, case.heads, m, n, k
        dtype = case.problem.dtype
        batch = (case.batch, case.heads)
        shapes = {
            "lhs": (*batch, *((k, m) if case.problem.lhs == "m" else (m, k))),
            "rhs": (*batch, *((n, k) if case.problem.rhs == "k" else (k, n))),
            "addend": (case.batch, 1, 1, n),
            "out": (*batch, m, n),
        }
        one = sum(int(np.prod(shape)) for shape in shapes.values()) * ELEMENT_BYTES[dtype]
        self.sets = max(2, min(_MAX_SETS, -(-footprint // one))) if footprint else 1
        self.bytes = one * self.sets
        self._copies: dict[str, _Copies] = {}
        self._expected: dict[tuple[int, bool], tuple[npt.NDArray[Any], npt.NDArray[Any]]] = {}
        try:
            for name, shape in shapes.items():
                self._copies[name] = _Copies(context, shape, dtype, self.sets)
            self._values = self._fill()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Free the memory."""
        while self._copies:
            self._copies.popitem()[1].memory.close()

    def __enter__(self) -> Buffers:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            self.close()
        except cuda.CudaError:
            if kind is None:
                raise

    def _fill(self) -> dict[str, npt.NDArray[Any]]:
        rng = np.random.default_rng()
        values = {}
        for name in ("lhs", "rhs", "addend"):
            copies = self._copies[name]
            random = rng.standard_normal(copies.shape, np.float32)
            stored = np.ascontiguousarray(encode(random, self.case.problem.dtype))
            copies.memory.write(stored.ctypes.data, stored.nbytes)
            copies.memory.repeat(copies.step)
            values[name] = stored
        return values

    def address(self, name: str, index: int) -> int:
        """Where ``lhs``, ``rhs``, ``addend`` or ``out`` of a copy is."""
        return self._copies[name].address(index)

    def shape(self, name: str) -> tuple[int, ...]:
        """Of an operand as it is stored; that of ``out`` is the product's alone."""
        return self._copies[name].shape

    def place(self, name: str, index: int) -> Place:
        """As a kernel takes it."""
        _, heads, rows, columns = self.shape(name)
        if name == "addend":
            # One row for all rows of all heads.
            return Place(self.address(name, index), (columns, 0, 0))
        return Place(self.address(name, index), (heads * rows * columns, rows * columns, columns))

    def out_place(self, index: int, *, fused: bool) -> Place:
        """As a kernel takes it; length-first, where the case has it so and it is computed."""
        if fused and self.case.epilogue == TRANSPOSE:
            row = self.heads * self.n
            return Place(self.address("out", index), (self.m * row, self.n, row))
        return self.place("out", index)

    def poison(self) -> None:
        """Make every result NaN."""
        self._copies["out"].memory.fill(_NAN_BYTE)

    def fault(self, index: int, *, fused: bool) -> str:
        """What is wrong with the result in a copy, ``""`` if nothing is.

        The matrices of three entries of the batch are compared with float64; all of them are in
        the check of kernels, which comes before.
        """
        for entry in sorted({0, self.batch // 2, self.batch - 1}):
            expected, bound = self._expectation(entry, fused)
            error = np.abs(self._result(index, entry, fused) - expected)
            if not np.all(error <= bound):
                wrong = int(np.count_nonzero(~(error <= bound)))
                return f"{wrong} of {error.size} results wrong in batch entry {entry}"
        return ""

    def _result(self, index: int, entry: int, fused: bool) -> npt.NDArray[Any]:
        length_first = fused and self.case.epilogue == TRANSPOSE
        shape = (self.m, self.heads, self.n) if length_first else (self.heads, self.m, self.n)
        stored = np.empty(shape, storage(self.case.problem.dtype))
        out = self._copies["out"]
        offset = index * out.step + entry * stored.nbytes
        out.memory.read(stored.ctypes.data, stored.nbytes, offset)
        values = decode(stored, self.case.problem.dtype)
        return values.transpose(1, 0, 2) if length_first else values

    def _expectation(self, entry: int, fused: bool) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
        """The exact results of a batch entry, and how far a right one may be from them."""
        key = entry, fused
        if key not in self._expected:
            problem = self.case.problem
            a, b, c = (
                decode(self._values[name][entry], problem.dtype)
                for name in ("lhs", "rhs", "addend")
            )
            a = a.swapaxes(-1, -2) if problem.lhs == "m" else a
            b = b.swapaxes(-1, -2) if problem.rhs == "k" else b
            expected, magnitude = a @ b, np.abs(a) @ np.abs(b)
            if fused and self.case.epilogue == MASK:
                expected = SCALE * expected + c
                magnitude = SCALE * magnitude + np.abs(c)
            bound = error_bound(problem.dtype, self.k, magnitude, expected)
            # Passes of their own round what they hand on.
            self._expected[key] = expected, bound + _passes_bound(problem.dtype, magnitude)
        return self._expected[key]


def _passes_bound(dtype: str, magnitude: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """What two passes over a result may lose, each of which rounds it to its type."""
    rounding: npt.NDArray[Any] = 2 * error_bound(dtype, 0, np.zeros_like(magnitude), magnitude)
    return rounding
