"""Operands that cannot be multiplied or added: the class of stock's error, the shapes in its text.

And arguments that are no good.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import tf_tvm_ops
from tf_tvm_ops import batch_matmul, batch_matmul_add, batch_matmul_transpose

from ..cases import ADDEND_MISMATCHES, LAYOUT_MISMATCHES, MISMATCHES, Case
from .family import compute, compute_transposed

CASES = (*MISMATCHES, *LAYOUT_MISMATCHES, *ADDEND_MISMATCHES)


def _text(shape: tuple[int, ...]) -> str:
    return "[" + ",".join(map(str, shape)) + "]"


def _shapes(case: Case) -> list[tuple[int, ...]]:
    return [case.lhs, case.rhs, *([] if case.addend is None else [case.addend])]


def _calls(case: Case) -> list[Callable[..., Any]]:
    """Of every op that takes the case's operands."""
    calls: list[Callable[..., Any]] = [lambda *x: compute(case, *x)]
    if case.addend is None:
        calls.append(lambda *x: compute_transposed(case, *x))
        calls.append(lambda a, b: batch_matmul_add(a, b, tf.ones([], a.dtype), **_flags(case)))
    return calls


def _flags(case: Case) -> dict[str, bool]:
    return {
        "adj_x": case.adj_x,
        "adj_y": case.adj_y,
        "a_length_first": case.a_length_first,
        "b_length_first": case.b_length_first,
    }


@pytest.mark.parametrize("case", CASES, ids=str)
def test_eager(case: Case) -> None:
    for call in _calls(case):
        with pytest.raises(tf.errors.InvalidArgumentError) as raised:
            call(*map(tf.ones, _shapes(case)))
        for shape in _shapes(case):
            assert _text(shape) in str(raised.value)


def _heads_first(x: tf.Tensor, length_first: bool) -> tf.Tensor:
    return tf.experimental.numpy.swapaxes(x, -3, -2) if length_first else x


def _has_heads(case: Case) -> bool:
    """Whether a length-first operand has dimensions to swap, without which there is no stock."""
    return (len(case.lhs) > 2 or not case.a_length_first) and (
        len(case.rhs) > 2 or not case.b_length_first
    )


@pytest.mark.parametrize("case", list(filter(_has_heads, CASES)), ids=str)
def test_stock_refuses_the_same(case: Case) -> None:
    a, b, *addend = map(tf.ones, _shapes(case))
    a, b = _heads_first(a, case.a_length_first), _heads_first(b, case.b_length_first)

    def stock() -> tf.Tensor:
        y = tf.raw_ops.BatchMatMulV2(x=a, y=b, adj_x=case.adj_x, adj_y=case.adj_y)
        return y + addend[0] if addend else y

    with pytest.raises(tf.errors.InvalidArgumentError):
        stock()


@pytest.mark.parametrize("case", CASES, ids=str)
def test_function_of_known_shapes(case: Case) -> None:
    """The shapes are compared when the function is traced."""
    for call in _calls(case):
        function = tf.function(call, autograph=False)
        with pytest.raises(ValueError, match="TvmBatchMatMul") as raised:
            function(*map(tf.ones, _shapes(case)))
        assert ", ".join(map(_text, _shapes(case))) in str(raised.value)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_function_of_unknown_shapes(case: Case) -> None:
    """They are compared when it runs."""
    unknown = tf.TensorSpec(None, tf.float32)
    for call in _calls(case):
        signature = [unknown] * len(_shapes(case))
        function = tf.function(call, input_signature=signature, autograph=False)
        with pytest.raises(tf.errors.InvalidArgumentError) as raised:
            function(*map(tf.ones, _shapes(case)))
        for shape in _shapes(case):
            assert _text(shape) in str(raised.value)


def test_session_of_unknown_shapes() -> None:
    case = Case((2, 1, 4), (2, 6, 1))
    fed = [np.ones(case.lhs), np.ones(case.rhs)]
    for call in _calls(case):
        with tf.Graph().as_default(), tf.compat.v1.Session() as session:
            inputs = [tf.compat.v1.placeholder(tf.float32) for _ in range(2)]
            output = call(*inputs)
            with pytest.raises(tf.errors.InvalidArgumentError, match=r"\[2,1,4\].*\[2,6,1\]"):
                session.run(output, dict(zip(inputs, fed)))


def test_a_matrix_has_no_heads_to_swap() -> None:
    a = tf.ones([3, 3])
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"3 dim.*\[3,3\].*\[3,3\]"):
        batch_matmul_transpose(a, a)
    with pytest.raises(ValueError, match="at least rank 3"):
        tf.function(batch_matmul_transpose, autograph=False)(a, a)
    for flags in ({"a_length_first": True}, {"b_length_first": True}):
        with pytest.raises(tf.errors.InvalidArgumentError, match=r"length-first.*\[3,3\]"):
            batch_matmul(a, a, **flags)


def test_an_error_leaves_the_ops_usable() -> None:
    with pytest.raises(tf.errors.InvalidArgumentError):
        batch_matmul(tf.ones([2, 3]), tf.ones([4, 5]))
    assert batch_matmul(tf.ones([2, 3]), tf.ones([3, 5])).numpy().tolist() == [[3.0] * 5] * 2


@pytest.mark.parametrize("scale", ["0.5", True, None, 1j, np.ones(1)])
def test_scale_must_be_a_python_number(scale: Any) -> None:
    a = tf.ones([1, 2, 2])
    for function, arguments in (
        (batch_matmul, (a, a)),
        (batch_matmul_add, (a, a, a)),
        (batch_matmul_transpose, (a, a)),
    ):
        with pytest.raises(TypeError, match="scale: expected a Python number"):
            function(*arguments, scale=scale)


def test_scale_may_not_be_a_tensor() -> None:
    a = tf.ones([1, 2, 2])
    with pytest.raises(TypeError, match="Multiply the result by a tensor instead"):
        batch_matmul(a, a, scale=tf.constant(0.5))


@pytest.mark.parametrize("text", ["", "half", "0.5x", "0,5", "1.0 2.0"])
def test_scale_of_the_raw_op_is_checked_when_the_kernel_is_made(text: str) -> None:
    ops = tf_tvm_ops.load()
    a = tf.ones([1, 2, 2])
    for function, arguments in (
        (ops.tvm_batch_mat_mul, {}),
        (ops.tvm_batch_mat_mul_add, {"addend": a}),
        (ops.tvm_batch_mat_mul_transpose, {}),
    ):
        with pytest.raises(tf.errors.InvalidArgumentError, match="scale: expected a number"):
            function(lhs=a, rhs=a, scale=text, **arguments)


def test_operands_of_different_dtypes() -> None:
    with pytest.raises((tf.errors.InvalidArgumentError, TypeError)):
        batch_matmul(tf.ones([2, 2]), tf.ones([2, 2], tf.float64))
    with pytest.raises((tf.errors.InvalidArgumentError, TypeError)):
        batch_matmul_add(tf.ones([2, 2]), tf.ones([2, 2]), tf.ones([2], tf.float16))
