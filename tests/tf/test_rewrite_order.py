"""What has to wait, or to be skipped, still does when a graph was rewritten."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tf_tvm_ops import rewrite, rewrite_graph_def

from .rewriting import normal

tf1 = tf.compat.v1
X = normal(2, 4, 5, 16).numpy()

# Takes the input, and what makes an op that is slow and leaves a trace.
Build = Callable[[Any, Callable[[], Any]], Any]


def product(x: Any) -> Any:
    return tf.raw_ops.BatchMatMulV2(x=x, y=x, adj_y=True)


def before_the_product(x: Any, slow: Callable[[], Any]) -> Any:
    with tf.control_dependencies([slow()]):
        y = product(x)
    return y * 0.5


def before_the_multiplication(x: Any, slow: Callable[[], Any]) -> Any:
    y, factor = product(x), tf.constant(0.5)
    with tf.control_dependencies([slow()]):
        return tf.multiply(y, factor)


def before_the_constant(x: Any, slow: Callable[[], Any]) -> Any:
    with tf.control_dependencies([slow()]):
        factor = tf.constant(0.5)
    return product(x) * factor


def before_what_a_constant_follows_from(x: Any, slow: Callable[[], Any]) -> Any:
    with tf.control_dependencies([slow()]):
        depth = tf.constant(16.0)
    return product(x) / tf.math.sqrt(depth)


def before_a_permutation(x: Any, slow: Callable[[], Any]) -> Any:
    with tf.control_dependencies([slow()]):
        permutation = tf.constant([0, 2, 1, 3])
    return tf.transpose(product(x), permutation)


def before_an_operand(x: Any, slow: Callable[[], Any]) -> Any:
    permutation = tf.constant([0, 1, 3, 2])
    with tf.control_dependencies([slow()]):
        y = tf.transpose(x, permutation)
    return tf.matmul(x, y)


def before_an_identity(x: Any, slow: Callable[[], Any]) -> Any:
    y = product(x)
    with tf.control_dependencies([slow()]):
        passed = tf.identity(y)
    return passed * 0.5


def before_the_addend(x: Any, slow: Callable[[], Any]) -> Any:
    with tf.control_dependencies([slow()]):
        addend = tf.constant(1.0)
    return product(x) + addend


BUILDS = (
    before_the_product,
    before_the_multiplication,
    before_the_constant,
    before_what_a_constant_follows_from,
    before_a_permutation,
    before_an_operand,
    before_an_identity,
    before_the_addend,
)


class Trace:
    """The order in which ops ran."""

    def __init__(self) -> None:
        self.events: list[str] = []

    def op(self, name: str, seconds: float) -> Any:
        """Make an op that takes so long and then leaves its name."""

        def leave() -> Any:
            time.sleep(seconds)
            self.events.append(name)
            return np.float32(0)

        return tf.numpy_function(leave, [], tf.float32)

    def slow(self) -> Any:
        """Make the op that others wait for."""
        return self.op("slow", 0.1)


def config() -> Any:
    """Without TensorFlow's own optimisations, which drop control edges of constants."""
    options = tf1.ConfigProto()
    options.graph_options.rewrite_options.disable_meta_optimizer = True
    return options


@pytest.mark.parametrize("build", BUILDS)
@pytest.mark.parametrize("stored", [False, True])
def test_in_a_graph(build: Build, stored: bool) -> None:
    trace = Trace()
    with tf.Graph().as_default() as graph:
        x = tf1.placeholder(tf.float32, X.shape, "x")
        result = tf.identity(build(x, trace.slow), name="result")
        with tf.control_dependencies([result]):
            tf.identity(trace.op("after", 0.0), name="after")
    definition = graph.as_graph_def()
    if stored:
        definition, report = rewrite_graph_def(definition, ["result", "after"])
    rewrite.clear_report()
    with tf.Graph().as_default() as imported:
        tf.import_graph_def(definition, name="")
        with tf1.Session(graph=imported, config=config()) as session:
            session.run(["result:0", "after:0"], {"x:0": X})
    if not stored:
        report = rewrite.report()
    assert report.rewritten
    assert trace.events == ["slow", "after"]


@pytest.mark.parametrize("build", BUILDS)
def test_in_a_stored_function(build: Build) -> None:
    trace = Trace()

    @tf.function
    def function(x: Any) -> Any:
        result = build(x, trace.slow)
        with tf.control_dependencies([result]):
            return result, trace.op("after", 0.0)

    outer = tf.function(lambda x: function(x)).get_concrete_function(X)
    definition, report = rewrite_graph_def(outer.graph.as_graph_def())
    assert report.rewritten
    with tf.Graph().as_default() as imported, rewrite.disabled():
        tf.import_graph_def(definition, name="")
        with tf1.Session(graph=imported, config=config()) as session:
            session.run([t.name for t in outer.outputs], {outer.inputs[0].name: X})
    assert trace.events == ["slow", "after"]


def test_a_branch_that_is_not_taken() -> None:
    """A constant of a branch makes what it meets part of the branch."""

    def late_zeros() -> Any:
        time.sleep(0.1)
        return np.zeros((2, 4, 5, 5), np.float32)

    def merged(taken: bool) -> Any:
        with tf.Graph().as_default(), tf1.Session(config=config()) as session:
            x = tf1.placeholder(tf.float32, X.shape)
            predicate = tf1.placeholder(tf.bool, [])
            if_false, if_true = tf.raw_ops.Switch(data=predicate, pred=predicate)
            with tf.control_dependencies([tf.identity(if_true)]):
                factor = tf.constant(2.0)
            with tf.control_dependencies([tf.identity(if_false)]):
                zeros = tf.numpy_function(late_zeros, [], tf.float32)
            result = tf.raw_ops.Merge(inputs=[product(x) * factor, zeros])
            return session.run(result, {x: X, predicate: taken})

    for taken in (False, True):
        with rewrite.disabled():
            want = merged(taken)
        got = merged(taken)
        assert got.value_index == want.value_index == (0 if taken else 1)
        np.testing.assert_allclose(got.output, want.output, rtol=1e-5, atol=1e-4)


def test_an_assertion_is_not_lost() -> None:
    with tf.Graph().as_default() as graph:
        x = tf1.placeholder(tf.float32, X.shape, "x")
        with tf.control_dependencies([tf1.assert_less(tf.reduce_max(x), 0.0)]):
            factor = tf.constant(0.25)
        tf.identity(product(x) * factor, name="out")
    stored, report = rewrite_graph_def(graph.as_graph_def(), ["out"])
    assert report.outcomes[0].parts == ("scale",)
    with tf.Graph().as_default(), tf1.Session() as session:
        tf.import_graph_def(stored, name="")
        with pytest.raises(tf.errors.InvalidArgumentError):
            session.run("out:0", {"x:0": X})
