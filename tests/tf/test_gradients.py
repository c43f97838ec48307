"""Gradients, first and second order, against finite differences and against stock."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given

from tf_tvm_ops import batch_matmul, batch_matmul_add, batch_matmul_transpose

from ..cases import ADJOINTS, Case, product, random_cases
from ..oracle import Array, matmul
from .family import compute, compute_transposed, has_transpose

Function = Callable[..., tf.Tensor]

BATCHES: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...] = (
    ((2,), (2,)),
    ((), (2,)),
    ((2,), ()),
    ((2, 1), (3,)),
    ((1,), (1,)),
)


def _cases() -> list[Case]:
    cases = [
        product((), 2, 3, 4, adj_x, adj_y, lhs_batch=lhs, rhs_batch=rhs, dtype="float64")
        for adj_x, adj_y in ADJOINTS
        for lhs, rhs in BATCHES
    ]
    for adj_x, adj_y in ADJOINTS:
        for a, b in ((True, False), (False, True), (True, True)):
            both: dict[str, Any] = {"a_length_first": a, "b_length_first": b, "dtype": "float64"}
            cases.append(product((2, 3), 2, 3, 2, adj_x, adj_y, **both, scale=0.5))
            cases.append(product((), 2, 3, 2, adj_x, adj_y, (1,), (2, 2), **both))
            cases.append(product((), 2, 3, 1, adj_x, adj_y, (2, 1), (1, 3), **both))
    addends = ((), (3,), (2, 1), (2, 1, 1, 3), (3, 1, 2, 3), (2, 2, 1, 1, 1), (1, 1))
    for addend in addends:
        cases.append(product((1, 2), 2, 3, 2, addend=addend, scale=-0.5, dtype="float64"))
        # Enlarges M = 1 and N = 1, too.
        cases.append(product((2,), 1, 1, 2, addend=addend, dtype="float64"))
    first = {"a_length_first": True, "b_length_first": True, "dtype": "float64"}
    cases.append(product((2, 2), 2, 3, 2, True, True, **first, addend=(2, 1, 1, 3), scale=2.0))
    return cases


def _functions(case: Case) -> list[Function]:
    """The ops that have the case."""
    functions: list[Function] = [lambda *x: compute(case, *x)]
    if has_transpose(case):
        functions.append(lambda *x: compute_transposed(case, *x))
    return functions


def _inputs(case: Case) -> list[Array]:
    addend = case.random_addend()
    return [*case.operands(), *([] if addend is None else [addend])]


def _largest_difference(pairs: tuple[list[Array], list[Array]]) -> float:
    theoretical, numerical = pairs
    assert any(np.abs(t).max() > 0.1 for t in theoretical)
    return max(float(np.abs(t - n).max()) for t, n in zip(theoretical, numerical, strict=True))


def _gradients(function: Function, inputs: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    """Of a sum in which every output has a weight of its own."""
    with tf.GradientTape() as tape:
        tape.watch(inputs)
        y = function(*inputs)
        weights = tf.cos(tf.cast(tf.range(tf.size(y)), tf.float64))
        loss = tf.reduce_sum(y * tf.cast(tf.reshape(weights, tf.shape(y)), y.dtype))
    found: list[tf.Tensor] = tape.gradient(loss, inputs)
    return found


@pytest.mark.parametrize("case", _cases(), ids=str)
def test_first_order(case: Case) -> None:
    for function in _functions(case):
        # Linear in each operand, so that a large step costs no accuracy.
        found = tf.test.compute_gradient(function, _inputs(case), delta=0.25)
        assert _largest_difference(found) < 1e-10


@pytest.mark.parametrize("case", _cases()[::2], ids=str)
def test_second_order(case: Case) -> None:
    for function in _functions(case):

        def gradients(*inputs: tf.Tensor, function: Function = function) -> tf.Tensor:
            with tf.GradientTape() as tape:
                tape.watch(inputs)
                loss = tf.reduce_sum(function(*inputs) ** 2)
            return tf.concat([tf.reshape(g, [-1]) for g in tape.gradient(loss, inputs)], 0)

        # Quadratic in each operand: central differences are exact again.
        graph = tf.function(gradients, autograph=False)
        found = tf.test.compute_gradient(graph, _inputs(case), delta=0.25)
        assert _largest_difference(found) < 1e-9


def _stock(case: Case, *inputs: tf.Tensor) -> tf.Tensor:
    a, b, *addend = inputs
    swap = tf.experimental.numpy.swapaxes
    a = swap(a, -3, -2) if case.a_length_first else a
    b = swap(b, -3, -2) if case.b_length_first else b
    y = tf.linalg.matmul(a, b, transpose_a=case.adj_x, transpose_b=case.adj_y)
    y = y * tf.cast(case.scale, y.dtype)
    return y + addend[0] if addend else y


def _stock_transposed(case: Case, *inputs: tf.Tensor) -> tf.Tensor:
    return tf.experimental.numpy.swapaxes(_stock(case, *inputs), -3, -2)


def _allowed(case: Case) -> float:
    return {"float64": 1e-12, "float32": 1e-4, "float16": 0.2, "bfloat16": 1.0}[case.dtype]


@given(random_cases(least=1))
def test_gradients_are_the_stock_ones(case: Case) -> None:
    inputs = [tf.constant(x) for x in _inputs(case)]
    pairs: list[tuple[Function, Function]] = [
        (lambda *x: compute(case, *x), lambda *x: _stock(case, *x))
    ]
    if has_transpose(case):
        pairs.append(
            (lambda *x: compute_transposed(case, *x), lambda *x: _stock_transposed(case, *x))
        )
    for ours, stock in pairs:
        for got, want, x in zip(_gradients(ours, inputs), _gradients(stock, inputs), inputs):
            assert got.shape == x.shape
            assert got.dtype == x.dtype
            scale = max(1.0, float(tf.reduce_max(tf.abs(tf.cast(want, tf.float64)))))
            difference = tf.cast(got, tf.float64) - tf.cast(want, tf.float64)
            assert float(tf.reduce_max(tf.abs(difference))) <= _allowed(case) * scale


@pytest.mark.parametrize("case", _cases(), ids=str)
@pytest.mark.parametrize("rank_known", [False, True])
def test_unknown_shapes(case: Case, rank_known: bool) -> None:
    """The same as with known ones, of which the other tests say that they are right."""
    inputs = [tf.constant(x) for x in _inputs(case)]
    shapes = [[None] * x.shape.rank if rank_known else None for x in inputs]
    signature = [tf.TensorSpec(shape, x.dtype) for shape, x in zip(shapes, inputs)]
    for function in _functions(case):

        def gradients(*x: tf.Tensor, function: Function = function) -> list[tf.Tensor]:
            return _gradients(function, x)

        graph = tf.function(gradients, input_signature=signature, autograph=False)
        for got, want in zip(graph(*inputs), _gradients(function, inputs)):
            np.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-12)


def test_gradients_of_broadcast_operands_are_summed() -> None:
    lhs, rhs = Case((5, 1, 3, 4), (2, 4, 6)).operands()
    a, b = tf.constant(lhs), tf.constant(rhs)
    with tf.GradientTape() as tape:
        tape.watch([a, b])
        loss = tf.reduce_sum(batch_matmul(a, b))
    grad_lhs, grad_rhs = tape.gradient(loss, [a, b])
    ones = np.ones((5, 2, 3, 6))
    np.testing.assert_allclose(
        grad_lhs, matmul(ones, rhs, adj_y=True).sum(1, keepdims=True), rtol=1e-5, atol=1e-5
    )
    np.testing.assert_allclose(grad_rhs, matmul(lhs, ones, adj_x=True).sum(0), rtol=1e-5, atol=1e-5)


def _kinds(function: Function, shapes: Sequence[Sequence[int | None]]) -> list[str]:
    """The ops of a graph with the function and its gradients."""
    with tf.Graph().as_default() as graph:
        inputs = [tf.compat.v1.placeholder(tf.float32, shape) for shape in shapes]
        tf.gradients(function(*inputs), inputs)
        return [op.type for op in graph.get_operations()]


def test_gradients_are_made_of_our_ops() -> None:
    kinds = _kinds(batch_matmul, [[2, 3, 3]] * 2)
    assert kinds.count("TvmBatchMatMul") == 3
    kinds += _kinds(batch_matmul_add, [[2, 3, 3], [2, 3, 3], [3]])
    kinds += _kinds(batch_matmul_transpose, [[2, 3, 3]] * 2)
    assert not any(kind.startswith("BatchMatMul") for kind in kinds)


def test_length_first_gradients_need_no_transpose() -> None:
    def function(a: tf.Tensor, b: tf.Tensor) -> tf.Tensor:
        return batch_matmul_transpose(a, b, a_length_first=True, b_length_first=True, adj_y=True)

    kinds = _kinds(function, [[2, 5, 3, 4], [2, 6, 3, 4]])
    assert kinds.count("TvmBatchMatMulTranspose") == 3
    assert "Transpose" not in kinds


def test_shapes_that_are_known_to_fit_are_not_summed() -> None:
    """A gradient that needs no sum has none, as far as that is known when the graph is made."""
    kinds = _kinds(batch_matmul, [[2, 3, 3]] * 2)
    kinds += _kinds(batch_matmul_transpose, [[2, 3, 3]] * 2)
    kinds += _kinds(batch_matmul_add, [[2, 3, 3]] * 3)
    kinds += _kinds(batch_matmul, [[3, None], [None, 3]])
    assert "Sum" not in kinds
    # That of the bias is summed, and those of the operands are not.
    assert _kinds(batch_matmul_add, [[2, 3, 3], [2, 3, 3], [3]]).count("Sum") == 1
    assert _kinds(batch_matmul_add, [[2, 3, 3], [2, 3, 3], [2, 1, 1]]).count("Sum") == 1


@pytest.mark.parametrize(
    "case",
    [
        Case((2, 3, 0), (2, 0, 4)),
        Case((2, 3, 0), (2, 0, 4), addend=(4,)),
        Case((0, 3, 2), (2, 4), addend=(5, 1, 1, 4)),
        Case((2, 0, 2), (2, 4)),
    ],
    ids=str,
)
def test_empty_products(case: Case) -> None:
    inputs = [tf.constant(x) for x in _inputs(case)]
    for function in _functions(case):
        gradients = _gradients(function, inputs)
        assert [g.shape for g in gradients] == [x.shape for x in inputs]
        # Of operands that no output depends on.
        assert all(tf.reduce_all(g == 0) for g in gradients[:2])


def test_gradient_of_an_operand_used_twice() -> None:
    x = tf.constant([[1.0, 2.0], [3.0, 4.0]])
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = batch_matmul_add(x, x, x, scale=0.5)
    weights = np.ones((2, 2))
    want = 0.5 * (weights @ x.numpy().T + x.numpy().T @ weights) + weights
    np.testing.assert_allclose(tape.gradient(y, x), want)
