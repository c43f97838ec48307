"""What users of other rewriters have met: an input of each kind."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tf_tvm_ops import rewrite, rewrite_graph_def

from .processes import output_with_tensorflow
from .rewriting import assert_same, normal, run

SQUARE = normal(2, 7, 7, 7)


@pytest.mark.parametrize("shape", [(7,), (1, 7), (7, 1), (), (1, 1, 7, 7), (2, 7, 7, 7), (7, 1, 1)])
@pytest.mark.parametrize("from_left", [False, True])
@pytest.mark.parametrize("known", [True, False])
def test_addends_of_every_shape(shape: tuple[int, ...], from_left: bool, known: bool) -> None:
    def function(x: Any, m: Any) -> Any:
        product = tf.matmul(x, x, transpose_b=True)
        return m + product if from_left else product + m

    m = normal(*shape, seed=5)
    specs = None if known else [tf.TensorSpec([None] * 4), tf.TensorSpec(None)]
    outcome = run(function, SQUARE, m, specs=specs).only()
    # A matrix times itself has one operand that is used twice; that is none of the addend's.
    assert outcome.op == "TvmBatchMatMulAdd"


@pytest.mark.parametrize(
    ("lhs", "rhs", "addend"),
    [
        ((5, 3), (3, 1), (1, 4)),
        ((2, 5, 3), (2, 3, 1), (6, 1, 1, 4)),
        ((1, 5, 3), (1, 3, 4), (6, 1, 4)),
        ((2, 1, 3), (2, 3, 4), (5, 4)),
        ((2, 5, 3), (2, 3, 4), (1, 1, 1, 1)),
    ],
)
@pytest.mark.parametrize("known", [True, False])
def test_an_addend_that_enlarges_the_product(
    lhs: tuple[int, ...], rhs: tuple[int, ...], addend: tuple[int, ...], known: bool
) -> None:
    def function(x: Any, y: Any, m: Any) -> Any:
        return tf.raw_ops.BatchMatMulV2(x=x, y=y) + m

    specs = None if known else [tf.TensorSpec(None)] * 3
    result = run(function, normal(*lhs), normal(*rhs), normal(*addend), specs=specs)
    if known and len(lhs) > 2:
        assert result.only().reason == "broadcast"


@pytest.mark.parametrize(
    ("permutation", "fused"),
    [
        ([0, 1, 2, 3], False),
        ([0, 2, 1, 3], True),
        ([0, -2, 1, 3], True),
        ([-4, -2, -3, -1], True),
        ([0, 1, 3, 2], True),  # of the matrices: the operands change places
        ([0, 3, 1, 2], True),  # both
        ([0, 3, 2, 1], False),
        ([1, 0, 2, 3], False),
        ([2, 1, 0, 3], False),
    ],
)
def test_only_the_right_permutation_is_fused(permutation: list[int], fused: bool) -> None:
    def function(x: Any, y: Any) -> Any:
        return tf.transpose(tf.matmul(x, y), permutation)

    outcome = run(function, SQUARE, normal(2, 7, 7, 7, seed=3)).only()
    assert bool(outcome.parts) is fused
    assert outcome.reason == ("" if fused else "permutation")


@pytest.mark.parametrize(
    "function",
    [
        lambda p: (tf.transpose(p, [0, 2, 1, 3]), tf.shape(p)),
        lambda p: (p + 1.0, tf.nn.relu(p)),
        lambda p: (p + 1.0, p + 2.0),
        lambda p: (p + 1.0, p),
    ],
)
def test_a_product_that_feeds_more_than_one(function: Any) -> None:
    # With open shapes, since TensorFlow makes a constant of a known one.
    specs = [tf.TensorSpec([None] * 4)] * 2
    other = normal(2, 7, 7, 7, seed=3)
    outcome = run(lambda x, y: function(tf.matmul(x, y)), SQUARE, other, specs=specs).only()
    assert outcome.reason == "consumers"


def test_side_effects_once_and_in_order() -> None:
    log = tf.Variable(0)

    def function(x: Any) -> Any:
        with tf.control_dependencies([log.assign(log * 10 + 1)]):
            product = tf.matmul(x, x)
        with tf.control_dependencies([product]):
            after = log.assign(log * 10 + 2)
        with tf.control_dependencies([after]):
            return product * 0.5 + 1.0, log.assign(log * 10 + 3)

    for rewriting in (False, True):
        (rewrite.enable if rewriting else rewrite.disable)()
        log.assign(0)
        tf.function(function)(SQUARE)
        assert log.numpy() == 123


@pytest.mark.parametrize("dtype", ["int32", "complex64", "complex128"])
def test_dtypes_that_the_ops_do_not_have(dtype: str) -> None:
    x = tf.cast(SQUARE * 10, dtype)
    outcome = run(lambda x: tf.matmul(x, x, adjoint_a=dtype != "int32") + x, x).only()
    assert outcome.reason == "dtype"


def test_float64_is_fused() -> None:
    x = tf.cast(SQUARE, tf.float64)
    assert run(lambda x: tf.matmul(x, x) + 1.0, x).only().op == "TvmBatchMatMulAdd"


def test_a_second_pass_changes_nothing_and_the_graph_imports_again() -> None:
    def function(x: Any, m: Any) -> Any:
        y = tf.while_loop(
            lambda i, _: i < 3,
            lambda i, y: (i + 1, tf.matmul(y, x) * 0.1 + m),
            (0, x),
        )[1]
        return tf.cond(tf.reduce_sum(y) > 0, lambda: tf.matmul(y, x) + m, lambda: y)

    m = normal(7, 7)
    concrete = tf.function(function).get_concrete_function(SQUARE, m)
    graph = concrete.graph.as_graph_def()
    once, report = rewrite_graph_def(graph)
    assert [outcome.op for outcome in report] == ["TvmBatchMatMulAdd"] * len(report)
    assert len(report) == 2
    twice, second = rewrite_graph_def(once)
    assert len(second) == 0
    assert twice == once
    want = concrete(SQUARE, m)
    feeds = {t.name: x.numpy() for t, x in zip(concrete.inputs, (SQUARE, m))}
    with tf.Graph().as_default() as imported, rewrite.disabled():
        tf.import_graph_def(once, name="")
        with tf.compat.v1.Session(graph=imported) as session:
            assert_same(session.run(concrete.outputs[0].name, feeds), want)


def test_gradients_of_a_reloaded_model(tmp_path: Path) -> None:
    class Model(tf.Module):
        @tf.function(input_signature=[tf.TensorSpec([None] * 4), tf.TensorSpec([None] * 4)])
        def __call__(self, x: Any, m: Any) -> Any:
            return tf.nn.softmax(tf.matmul(x, x, transpose_b=True) * 0.25 + m)

    tf.saved_model.save(Model(), str(tmp_path / "model"))
    model = tf.saved_model.load(str(tmp_path / "model"))
    mask = normal(1, 1, 1, 7)

    def gradients() -> Any:
        with tf.GradientTape() as tape:
            tape.watch([SQUARE, mask])
            loss = tf.reduce_sum(model(SQUARE, mask) ** 2)
        return tape.gradient(loss, [SQUARE, mask])

    with rewrite.disabled():
        model_stock = tf.saved_model.load(str(tmp_path / "model"))
        with tf.GradientTape() as tape:
            tape.watch([SQUARE, mask])
            loss = tf.reduce_sum(model_stock(SQUARE, mask) ** 2)
        want = tape.gradient(loss, [SQUARE, mask])
    got = gradients()
    assert got[1].shape == mask.shape
    assert_same(got, want)


def test_a_model_saved_after_loading_opens_without_the_library(tmp_path: Path) -> None:
    output_with_tensorflow(
        f"""
        import tensorflow as tf, tf_tvm_ops
        tf_tvm_ops.load()
        module = tf.Module()
        module.f = tf.function(lambda x: tf.matmul(x, x) * 0.5,
                               input_signature=[tf.TensorSpec([None] * 4)])
        module.f(tf.ones([1, 2, 3, 3]))
        tf.saved_model.save(module, {str(tmp_path / "model")!r})
        """
    )
    printed = output_with_tensorflow(
        f"""
        import tensorflow as tf
        model = tf.saved_model.load({str(tmp_path / "model")!r})
        print(float(model.f(tf.ones([1, 2, 3, 3]))[0, 0, 0, 0]))
        """
    )
    assert printed == "1.5"


def test_no_fusion_across_a_cast() -> None:
    def function(q: Any, k: Any, m: Any) -> Any:
        product = tf.matmul(q, k, transpose_b=True)
        return tf.nn.softmax(tf.cast(product, tf.float32) + m)

    q, k = (tf.cast(normal(2, 4, 5, 16, seed=i), tf.float16) for i in (1, 2))
    mask = tf.constant(np.full((2, 1, 5, 5), -1e9, np.float32))
    result = run(function, q, k, mask)
    assert result.only().op == "TvmBatchMatMul"
    assert result.only().reason == "cast"
    assert not np.isnan(result.outputs.numpy()).any()
