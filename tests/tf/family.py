"""Running the ops of the family on the cases of tests/cases.py."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import tensorflow as tf

from tf_tvm_ops import batch_matmul, batch_matmul_add, batch_matmul_transpose

from ..cases import Case
from ..oracle import Array, check_matmul

FALLBACKS = ("auto", "generic", "stock")


def options(case: Case) -> dict[str, Any]:
    """The arguments of the Python functions, besides tensors."""
    return {
        "adj_x": case.adj_x,
        "adj_y": case.adj_y,
        "scale": case.scale,
        "a_length_first": case.a_length_first,
        "b_length_first": case.b_length_first,
    }


def compute(case: Case, a: Any, b: Any, addend: Any = None) -> tf.Tensor:
    """The product, by the op with an addend if there is one."""
    if case.addend is None:
        return batch_matmul(a, b, **options(case))
    return batch_matmul_add(a, b, addend, **options(case))


def compute_transposed(case: Case, a: Any, b: Any) -> tf.Tensor:
    """The product, written length-first."""
    return batch_matmul_transpose(a, b, **options(case))


def has_transpose(case: Case) -> bool:
    """Whether there is a `batch_matmul_transpose` of the case."""
    return case.addend is None and max(len(case.lhs), len(case.rhs)) >= 3


def check(case: Case, got: Any, lhs: Array, rhs: Array, addend: Array | None = None) -> None:
    """Assert that ``got`` is what `compute` should give."""
    a, b = case.matrices(lhs, rhs)
    check_matmul(got, a, b, scale=case.scale, addend=addend)


def check_transposed(case: Case, got: Any, lhs: Array, rhs: Array) -> None:
    """Assert that ``got`` is what `compute_transposed` should give."""
    check(case, np.swapaxes(np.asarray(got), -3, -2), lhs, rhs)


def check_case(case: Case, run: Callable[..., Any] | None = None) -> None:
    """Check every op that has the case, on random operands.

    ``run`` calls a function with arguments; without it they are called eagerly.
    """
    run = run or (lambda function, *arguments: function(*arguments))
    lhs, rhs = case.operands()
    addend = case.random_addend()
    arrays = (lhs, rhs) if addend is None else (lhs, rhs, addend)
    check(case, run(lambda *x: compute(case, *x), *arrays), *arrays)
    if has_transpose(case):
        got = run(lambda *x: compute_transposed(case, *x), *arrays)
        check_transposed(case, got, lhs, rhs)


@contextmanager
def fallback(value: str) -> Iterator[Callable[..., Any]]:
    """A way to call functions under ``TF_TVM_OPS_FALLBACK=value``.

    Kernels read it when they are made, so each call is a graph of its own.
    """
    before = os.environ.get("TF_TVM_OPS_FALLBACK")
    os.environ["TF_TVM_OPS_FALLBACK"] = value
    try:
        yield lambda function, *arguments: tf.function(function, autograph=False)(*arguments)
    finally:
        if before is None:
            del os.environ["TF_TVM_OPS_FALLBACK"]
        else:
            os.environ["TF_TVM_OPS_FALLBACK"] = before


def misaligned(x: Array) -> tf.Tensor:
    """``x`` one element off the alignment of TensorFlow's own buffers."""
    size = x.dtype.itemsize
    room = np.empty(x.size + 128 // size, x.dtype)
    start = (-room.ctypes.data // size) % (64 // size) + 1
    view = room[start : start + x.size].reshape(x.shape)
    view[...] = x
    assert view.ctypes.data % 64 == size
    return borrowed(view)


def borrowed(x: Array) -> tf.Tensor:
    """A tensor in the memory of ``x``, wherever that lies."""
    if x.dtype.name == "bfloat16":
        # NumPy does not know it, so it travels as another type of its size.
        tensor = tf.experimental.dlpack.from_dlpack(x.view(np.uint16).__dlpack__())
        return tf.bitcast(tensor, tf.bfloat16)
    return tf.experimental.dlpack.from_dlpack(x.__dlpack__())


def address(tensor: tf.Tensor) -> int:
    """Where the elements of an eager tensor lie."""
    x = tensor if tensor.dtype != tf.bfloat16 else tf.bitcast(tensor, tf.uint16)
    return int(np.from_dlpack(x).ctypes.data)
