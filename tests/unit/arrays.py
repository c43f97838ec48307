"""Operands of products, and the check of what the dispatcher makes of them."""

from __future__ import annotations

from typing import Any

import ml_dtypes  # noqa: F401  (gives NumPy the dtype "bfloat16")
import numpy as np
import numpy.typing as npt

from tests import oracle
from tf_tvm_ops import _native

Array = npt.NDArray[Any]


def random_array(*shape: int, seed: int = 0, dtype: str = "float32") -> Array:
    """Values in [-0.5, 0.5)."""
    values = np.random.default_rng(seed).random(shape, dtype=np.float32) - np.float32(0.5)
    array: Array = values.astype(dtype)
    return array


def with_strides(
    shape: tuple[int, ...], strides: tuple[int, ...], seed: int = 0, dtype: str = "float32"
) -> Array:
    """An array of these strides, in elements, all of them 0 or more."""
    size = 1 + sum((extent - 1) * stride for extent, stride in zip(shape, strides) if extent)
    data = random_array(max(size, 1), seed=seed, dtype=dtype)
    return np.lib.stride_tricks.as_strided(
        data, shape, tuple(data.itemsize * stride for stride in strides), writeable=False
    )


def check(
    dispatcher: _native.Dispatcher,
    lhs: Array,
    rhs: Array,
    *,
    scale: float = 1.0,
    addend: Array | None = None,
    **options: Any,
) -> _native.KernelInfo:
    """Assert that the product is right; the kernel that made it."""
    out, kernel = dispatcher.matmul(lhs, rhs, scale=scale, addend=addend, **options)
    oracle.check_matmul(out, lhs, rhs, scale=scale, addend=addend)
    assert kernel is not None
    return kernel
