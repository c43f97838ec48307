"""The right answer: float64 NumPy, and how far float32 may be from it."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

UNIT_ROUNDOFF = 2.0**-24
SMALLEST_NORMAL = 2.0**-126
"""Both of float32."""


def transpose(x: Array) -> Array:
    """Swap the last two dimensions."""
    return np.swapaxes(x, -1, -2)


def matmul(lhs: Array, rhs: Array, adj_x: bool = False, adj_y: bool = False) -> Array:
    """The product in float64, with the shapes of ``BatchMatMulV2``."""
    a = (transpose(lhs) if adj_x else lhs).astype(np.float64)
    b = (transpose(rhs) if adj_y else rhs).astype(np.float64)
    product: Array = a @ b
    return product


def tolerance(lhs: Array, rhs: Array, adj_x: bool = False, adj_y: bool = False) -> Array:
    """What a float32 sum of the K products may lose, whatever its order.

    ``K·u·(|lhs|·|rhs|)``, u the unit round-off: Higham, Accuracy and Stability of Numerical
    Algorithms, section 3.5. One more u for the result, and room for terms that are flushed to zero.
    """
    depth = lhs.shape[-2] if adj_x else lhs.shape[-1]
    magnitude = matmul(np.abs(lhs), np.abs(rhs), adj_x, adj_y)
    allowed: Array = (depth + 1) * UNIT_ROUNDOFF * magnitude + depth * SMALLEST_NORMAL
    return allowed


def check_matmul(
    got: Any, lhs: Array, rhs: Array, adj_x: bool = False, adj_y: bool = False
) -> None:
    """Assert that ``got`` is the float32 product: its dtype, its shape, and every element.

    NaN and infinities are expected where float64 has them.
    """
    got = np.asarray(got)
    with np.errstate(invalid="ignore", over="ignore"):
        want = matmul(lhs, rhs, adj_x, adj_y)
        allowed = tolerance(lhs, rhs, adj_x, adj_y)
        assert got.dtype == np.float32
        assert got.shape == want.shape
        finite = np.isfinite(want)
        wrong = np.where(finite, ~(np.abs(got - want) <= allowed), False)
    np.testing.assert_array_equal(got[~finite], want[~finite].astype(np.float32))
    if wrong.any():
        at = tuple(int(i) for i in np.argwhere(wrong)[0])
        raise AssertionError(
            f"{int(wrong.sum())} of {want.size} elements are wrong; the first, at {list(at)}, is "
            f"{got[at]!r} and should be {want[at]!r} ± {allowed[at]:.3g}"
        )
