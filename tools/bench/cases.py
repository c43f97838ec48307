"""What is measured: rows of the shape tables, as operands of a batch matmul."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tf_tvm_ops import kernels
from tf_tvm_ops.kernels.elements import ELEMENT_BYTES
from tf_tvm_ops.kernels.shapes import ShapeRow, load_tables

Array = npt.NDArray[Any]

ROUNDING = {"float64": 2.0**-53, "float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}
"""Unit round-off of each type."""

_SMALLEST = {
    "float64": 2.0**-1074,
    "float32": 2.0**-149,
    "float16": 2.0**-24,
    "bfloat16": 2.0**-133,
}


def numpy_dtype(name: str) -> np.dtype[Any]:
    """NumPy's type of that name; bfloat16 comes from ml-dtypes, as TensorFlow's does."""
    if name != "bfloat16":
        return np.dtype(name)
    import ml_dtypes

    bfloat16: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)
    return bfloat16


@dataclass(frozen=True)
class Case:
    """One product to measure.

    Attributes
    ----------
    site
        Where in which model it is computed.
    lhs_shape, rhs_shape
        Of the operands as they are stored.
    adj_x, adj_y
        Whether the matrices of an operand are stored transposed.
    dtype
        Of operands and product.
    """

    site: str
    lhs_shape: tuple[int, ...]
    rhs_shape: tuple[int, ...]
    adj_x: bool
    adj_y: bool
    dtype: str = "float32"

    @classmethod
    def of(cls, row: ShapeRow) -> Case:
        """The product of a row of a shape table."""
        adj_x, adj_y = row.lhs == "m", row.rhs == "k"
        lhs = (row.k, row.m) if adj_x else (row.m, row.k)
        rhs = (row.n, row.k) if adj_y else (row.k, row.n)
        return cls(row.site, (*row.batch, *lhs), (*row.batch, *rhs), adj_x, adj_y, row.dtype)

    @property
    def out_shape(self) -> tuple[int, ...]:
        """Of the product."""
        m = self.lhs_shape[-1 if self.adj_x else -2]
        return (*self.lhs_shape[:-2], m, self.rhs_shape[-2 if self.adj_y else -1])

    @property
    def input_bytes(self) -> int:
        """Size of both operands."""
        elements = math.prod(self.lhs_shape) + math.prod(self.rhs_shape)
        return ELEMENT_BYTES[self.dtype] * elements

    def operands(self, seed: int = 0) -> tuple[Array, Array]:
        """Random operands in [-1, 1)."""
        rng = np.random.default_rng(seed)
        return self.random(self.lhs_shape, rng), self.random(self.rhs_shape, rng)

    def random(self, shape: tuple[int, ...], rng: np.random.Generator) -> Array:
        """Random numbers of the case's type in [-1, 1)."""
        single = np.float64 if self.dtype == "float64" else np.float32
        return (rng.random(shape, dtype=single) * 2 - 1).astype(numpy_dtype(self.dtype))

    def __str__(self) -> str:
        *batch, m, k = self.lhs_shape
        n = self.rhs_shape[-2] if self.adj_y else self.rhs_shape[-1]
        if self.adj_x:
            m, k = k, m
        transposed = ("ᵀ" if self.adj_x else "", "ᵀ" if self.adj_y else "")
        dtype = "" if self.dtype == "float32" else f" {self.dtype}"
        return f"{batch} {m}×{k}{transposed[0]} · {k}×{n}{transposed[1]}{dtype}"


def default_tables() -> list[Path]:
    """The shape tables that come with the package."""
    return sorted((Path(kernels.__file__).parent / "tables").glob("*.yaml"))


def select(paths: Iterable[Path], per_site: int) -> list[Case]:
    """At most ``per_site`` products of each site of the tables, spread over its sizes."""
    by_site: dict[str, list[ShapeRow]] = {}
    for row in load_tables(paths):
        by_site.setdefault(row.site, []).append(row)
    cases: list[Case] = []
    for rows in by_site.values():
        rows = sorted(rows, key=lambda row: row.m * row.n * row.k)
        # Midpoints of equal parts: neither the smallest nor the largest alone.
        count = min(per_site, len(rows))
        cases += [Case.of(rows[(2 * i + 1) * len(rows) // (2 * count)]) for i in range(count)]
    return cases


class Oracle:
    """What a product of given operands is, in float64.

    Parameters
    ----------
    case
        The product.
    lhs, rhs
        Its operands.
    """

    def __init__(self, case: Case, lhs: Array, rhs: Array) -> None:
        a = (lhs.swapaxes(-1, -2) if case.adj_x else lhs).astype(np.float64)
        b = (rhs.swapaxes(-1, -2) if case.adj_y else rhs).astype(np.float64)
        self.case = case
        self._terms = a.shape[-1]
        self._product = a @ b
        self._size = np.abs(a) @ np.abs(b)

    def worst_error(self, got: Array, scale: float = 1.0, addend: Array | None = None) -> float:
        """Largest error of ``got``, as a multiple of what its type may lose on it.

        ``got`` should be ``scale`` times the product, plus the addend if there is one.

        The bound is the usual one for a sum of K products in any order, K·u·|lhs|·|rhs| with u the
        unit round-off (Higham, Accuracy and Stability of Numerical Algorithms, section 3.5). 16-bit
        types are summed in float32; each op that follows the product rounds to 16 bits again.
        """
        dtype = self.case.dtype
        scaled = scale * self._product
        want, size, roundings = scaled, abs(scale) * self._size, self._terms + 1
        if addend is not None:
            want = want + addend
            size = size + np.abs(addend)
            roundings += 2
        if got.shape != want.shape or not np.isfinite(got.astype(np.float64)).all():
            return math.inf
        summed = "float64" if dtype == "float64" else "float32"
        bound = roundings * ROUNDING[summed] * size + _SMALLEST[dtype]
        if summed != dtype:
            # Of the product, the scaled product, and the sum; each may start from the one before.
            stored = np.abs(scaled) + bound
            bound = bound + 1.01 * ROUNDING[dtype] * (2 * stored + np.abs(want))
        return float((np.abs(got.astype(np.float64) - want) / bound).max(initial=0.0))
