"""Gradients, first and second order, against finite differences and against the oracle."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from tf_tvm_ops import batch_matmul

from ..cases import ADJOINTS, Case, product
from ..oracle import Array, matmul

BATCHES: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...] = (
    ((2,), (2,)),
    ((), (2,)),
    ((2,), ()),
    ((2, 1), (3,)),
    ((1,), (1,)),
)


def _cases() -> list[Case]:
    return [
        product((), 2, 3, 4, adj_x, adj_y, lhs_batch=lhs, rhs_batch=rhs)
        for adj_x, adj_y in ADJOINTS
        for lhs, rhs in BATCHES
    ]


def _largest_difference(pairs: tuple[list[Array], list[Array]]) -> float:
    theoretical, numerical = pairs
    assert any(np.abs(t).max() > 0.1 for t in theoretical)
    return max(float(np.abs(t - n).max()) for t, n in zip(theoretical, numerical, strict=True))


@pytest.mark.parametrize("case", _cases(), ids=str)
def test_first_order(case: Case) -> None:
    lhs, rhs = case.operands()

    def multiply(a: tf.Tensor, b: tf.Tensor) -> tf.Tensor:
        return batch_matmul(a, b, case.adj_x, case.adj_y)

    # Linear in each operand, so that a large step costs no accuracy.
    gradients = tf.test.compute_gradient(multiply, [lhs, rhs], delta=0.25)
    assert _largest_difference(gradients) < 1e-4


@pytest.mark.parametrize("case", _cases(), ids=str)
def test_second_order(case: Case) -> None:
    lhs, rhs = case.operands()

    def gradients(a: tf.Tensor, b: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            tape.watch([a, b])
            loss = tf.reduce_sum(batch_matmul(a, b, case.adj_x, case.adj_y) ** 2)
        return tf.concat([tf.reshape(g, [-1]) for g in tape.gradient(loss, [a, b])], 0)

    # Quadratic in each operand: central differences are exact again.
    assert _largest_difference(tf.test.compute_gradient(gradients, [lhs, rhs], delta=0.25)) < 1e-3


@pytest.mark.parametrize("case", _cases(), ids=str)
def test_gradients_are_the_stock_ones(case: Case) -> None:
    lhs, rhs = (tf.constant(x) for x in case.operands())
    weights = np.cos(np.arange(matmul(lhs.numpy(), rhs.numpy(), case.adj_x, case.adj_y).size))

    def gradients(multiply: object) -> list[tf.Tensor]:
        with tf.GradientTape() as tape:
            tape.watch([lhs, rhs])
            y = multiply(lhs, rhs)  # type: ignore[operator]
            loss = tf.tensordot(tf.reshape(y, [-1]), tf.constant(weights, tf.float32), 1)
        found: list[tf.Tensor] = tape.gradient(loss, [lhs, rhs])
        return found

    ours = gradients(lambda a, b: batch_matmul(a, b, case.adj_x, case.adj_y))
    stock = gradients(
        lambda a, b: tf.linalg.matmul(a, b, transpose_a=case.adj_x, transpose_b=case.adj_y)
    )
    for got, want in zip(ours, stock, strict=True):
        assert got.shape == want.shape
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


def test_gradient_of_unknown_shapes() -> None:
    unknown = tf.TensorSpec(None, tf.float32)

    def gradients(a: tf.Tensor, b: tf.Tensor) -> list[tf.Tensor]:
        with tf.GradientTape() as tape:
            tape.watch([a, b])
            loss = tf.reduce_sum(batch_matmul(a, b))
        found: list[tf.Tensor] = tape.gradient(loss, [a, b])
        return found

    lhs, rhs = Case((5, 1, 3, 4), (2, 4, 6)).operands()
    grad_lhs, grad_rhs = tf.function(gradients, input_signature=[unknown, unknown])(lhs, rhs)
    ones = np.ones((5, 2, 3, 6))
    np.testing.assert_allclose(
        grad_lhs, matmul(ones, rhs, adj_y=True).sum(1, keepdims=True), rtol=1e-5, atol=1e-5
    )
    np.testing.assert_allclose(grad_rhs, matmul(lhs, ones, adj_x=True).sum(0), rtol=1e-5, atol=1e-5)


def test_gradient_is_made_of_our_op() -> None:
    with tf.Graph().as_default() as graph:
        a, b = (tf.compat.v1.placeholder(tf.float32, [2, 3, 3]) for _ in range(2))
        tf.gradients(batch_matmul(a, b), [a, b])
        kinds = [op.type for op in graph.get_operations()]
    assert kinds.count("TvmBatchMatMul") == 3
    assert not any(kind.startswith("BatchMatMul") for kind in kinds)


def test_empty_products() -> None:
    lhs, rhs = (tf.constant(x) for x in Case((2, 3, 0), (2, 0, 4)).operands())
    with tf.GradientTape() as tape:
        tape.watch([lhs, rhs])
        y = batch_matmul(lhs, rhs)
    assert [g.shape for g in tape.gradient(y, [lhs, rhs])] == [lhs.shape, rhs.shape]
