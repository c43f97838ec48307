"""The right answer: float64 NumPy, and how far each dtype may be from it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Precision:
    """How exact products of a dtype are.

    Attributes
    ----------
    of_sums, of_results
        Unit round-off of the type that is summed in, and of the dtype.
    smallest
        The smallest normal number, or for float16, whose smaller ones are not flushed to zero,
        their distance.
    """

    of_sums: float
    of_results: float
    smallest: float


PRECISION = {
    "float32": Precision(2.0**-24, 2.0**-24, 2.0**-126),
    "float16": Precision(2.0**-24, 2.0**-11, 2.0**-24),
    "bfloat16": Precision(2.0**-24, 2.0**-8, 2.0**-126),
    # The oracle is no more exact than the product, so each has a half of this.
    "float64": Precision(2.0**-52, 2.0**-52, 2.0**-1022),
}


def transpose(x: Array) -> Array:
    """Swap the last two dimensions."""
    return np.swapaxes(x, -1, -2)


def matmul(
    lhs: Array,
    rhs: Array,
    adj_x: bool = False,
    adj_y: bool = False,
    *,
    scale: float = 1.0,
    addend: Array | None = None,
) -> Array:
    """``scale * lhs @ rhs + addend`` in float64, with the shapes of ``BatchMatMulV2``."""
    a = (transpose(lhs) if adj_x else lhs).astype(np.float64)
    b = (transpose(rhs) if adj_y else rhs).astype(np.float64)
    product: Array = scale * (a @ b)
    return product if addend is None else product + addend.astype(np.float64)


def tolerance(
    lhs: Array,
    rhs: Array,
    adj_x: bool = False,
    adj_y: bool = False,
    *,
    scale: float = 1.0,
    addend: Array | None = None,
) -> Array:
    """What the sum of the K products may lose, whatever its order.

    ``K·u·(|lhs|·|rhs|)``, u the unit round-off: Higham, Accuracy and Stability of Numerical
    Algorithms, section 3.5. One more u for a scale and one for an addend, one of the dtype for the
    result, and room for terms that are flushed to zero.
    """
    precision = PRECISION[lhs.dtype.name]
    depth = lhs.shape[-2] if adj_x else lhs.shape[-1]
    steps = depth + (scale != 1) + (addend is not None)
    added = None if addend is None else np.abs(addend)
    magnitude = matmul(np.abs(lhs), np.abs(rhs), adj_x, adj_y, scale=abs(scale), addend=added)
    result = np.abs(matmul(lhs, rhs, adj_x, adj_y, scale=scale, addend=addend))
    allowed: Array = steps * precision.of_sums * magnitude + precision.of_results * result
    allowed += max(depth, 1) * max(abs(scale), 1) * precision.smallest
    return allowed


def check_matmul(
    got: Any,
    lhs: Array,
    rhs: Array,
    adj_x: bool = False,
    adj_y: bool = False,
    *,
    scale: float = 1.0,
    addend: Array | None = None,
) -> None:
    """Assert that ``got`` is the product, of the operands' dtype: its shape, and every element.

    NaN and infinities are expected where float64 has them.
    """
    got = np.asarray(got)
    assert got.dtype == lhs.dtype
    got = got.astype(np.float64)
    with np.errstate(invalid="ignore", over="ignore"):
        want = matmul(lhs, rhs, adj_x, adj_y, scale=scale, addend=addend)
        allowed = tolerance(lhs, rhs, adj_x, adj_y, scale=scale, addend=addend)
        assert got.shape == want.shape
        finite = np.isfinite(want)
        wrong = np.where(finite, ~(np.abs(got - want) <= allowed), False)
    np.testing.assert_array_equal(got[~finite], want[~finite])
    if wrong.any():
        at = tuple(int(i) for i in np.argwhere(wrong)[0])
        raise AssertionError(
            f"{int(wrong.sum())} of {want.size} elements are wrong; the first, at {list(at)}, is "
            f"{got[at]!r} and should be {want[at]!r} ± {allowed[at]:.3g}"
        )
