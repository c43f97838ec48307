"""Operands that cannot be multiplied: the class of stock's error, and both shapes in its text."""

from __future__ import annotations

import pytest
import tensorflow as tf

from tf_tvm_ops import batch_matmul

from ..cases import MISMATCHES, Case


def _text(shape: tuple[int, ...]) -> str:
    return "[" + ",".join(map(str, shape)) + "]"


def _multiply(a: tf.Tensor, b: tf.Tensor, case: Case) -> tf.Tensor:
    return batch_matmul(a, b, case.adj_x, case.adj_y)


@pytest.mark.parametrize("case", MISMATCHES, ids=str)
def test_eager(case: Case) -> None:
    with pytest.raises(tf.errors.InvalidArgumentError) as raised:
        _multiply(tf.ones(case.lhs), tf.ones(case.rhs), case)
    assert _text(case.lhs) in str(raised.value)
    assert _text(case.rhs) in str(raised.value)


@pytest.mark.parametrize("case", MISMATCHES, ids=str)
def test_stock_refuses_the_same(case: Case) -> None:
    with pytest.raises(tf.errors.InvalidArgumentError):
        tf.raw_ops.BatchMatMulV2(
            x=tf.ones(case.lhs), y=tf.ones(case.rhs), adj_x=case.adj_x, adj_y=case.adj_y
        )


@pytest.mark.parametrize("case", MISMATCHES, ids=str)
def test_function_of_known_shapes(case: Case) -> None:
    """The shapes are compared when the function is traced."""
    function = tf.function(lambda a, b: _multiply(a, b, case), autograph=False)
    with pytest.raises(ValueError, match="TvmBatchMatMul") as raised:
        function(tf.ones(case.lhs), tf.ones(case.rhs))
    assert f"{_text(case.lhs)}, {_text(case.rhs)}" in str(raised.value)


@pytest.mark.parametrize("case", MISMATCHES, ids=str)
def test_function_of_unknown_shapes(case: Case) -> None:
    """They are compared when it runs."""
    unknown = tf.TensorSpec(None, tf.float32)
    function = tf.function(
        lambda a, b: _multiply(a, b, case), input_signature=[unknown, unknown], autograph=False
    )
    with pytest.raises(tf.errors.InvalidArgumentError) as raised:
        function(tf.ones(case.lhs), tf.ones(case.rhs))
    assert _text(case.lhs) in str(raised.value)
    assert _text(case.rhs) in str(raised.value)


def test_session_of_unknown_shapes() -> None:
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        a, b = (tf.compat.v1.placeholder(tf.float32) for _ in range(2))
        product = batch_matmul(a, b)
        with pytest.raises(tf.errors.InvalidArgumentError, match=r"\[2,1,4\].*\[2,6,1\]"):
            session.run(product, {a: [[[1.0] * 4]] * 2, b: [[[1.0]] * 6] * 2})


@pytest.mark.parametrize("dtype", [tf.float64, tf.int32, tf.complex64])
def test_other_dtypes_are_refused(dtype: tf.DType) -> None:
    ones = tf.ones([2, 2], dtype)
    with pytest.raises((tf.errors.InvalidArgumentError, tf.errors.NotFoundError, TypeError)):
        batch_matmul(ones, ones)


def test_an_error_leaves_the_op_usable() -> None:
    with pytest.raises(tf.errors.InvalidArgumentError):
        batch_matmul(tf.ones([2, 3]), tf.ones([4, 5]))
    assert batch_matmul(tf.ones([2, 3]), tf.ones([3, 5])).numpy().tolist() == [[3.0] * 5] * 2
