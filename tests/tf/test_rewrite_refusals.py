"""What the rewriter does not fuse, and what it leaves alone, each for its reason."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import tensorflow as tf

from tf_tvm_ops import rewrite, rewrite_graph_def

from .rewriting import MASK, QL, SWAP, K, P, Q, V, normal, run, scores

Function = Callable[..., Any]

# Name: function, inputs, op, reason why no more was fused.
NOT_FUSED: dict[str, tuple[Function, tuple[Any, ...], str, str]] = {
    "used twice": (
        lambda q, k: (lambda s: (s * 2.0, tf.nn.relu(s)))(scores(q, k)),
        (Q, K),
        "TvmBatchMatMul",
        "consumers",
    ),
    "squared": (
        lambda q, k: (lambda s: s + s)(scores(q, k)),
        (Q, K),
        "TvmBatchMatMul",
        "consumers",
    ),
    "returned too": (
        lambda q, k: (lambda s: (s, s * 2.0))(scores(q, k)),
        (Q, K),
        "TvmBatchMatMul",
        "consumers",
    ),
    "a factor that is an input": (
        lambda q, k, f: scores(q, k) * f,
        (Q, K, tf.constant(2.0)),
        "TvmBatchMatMul",
        "not_constant",
    ),
    "a factor for each column": (
        lambda q, k: scores(q, k) * tf.constant([1.0] * 6 + [2.0]),
        (Q, K),
        "TvmBatchMatMul",
        "factor",
    ),
    "a factor of more dimensions": (
        lambda q, k: scores(q, k) * tf.constant([[[[[2.0]]]]]),
        (Q, K),
        "TvmBatchMatMul",
        "factor",
    ),
    "divided by zero": (lambda q, k: scores(q, k) / 0.0, (Q, K), "TvmBatchMatMul", "factor"),
    "times infinity": (
        lambda q, k: scores(q, k) * float("inf"),
        (Q, K),
        "TvmBatchMatMul",
        "factor",
    ),
    "another permutation": (
        lambda q, k: tf.transpose(scores(q, k), [1, 0, 2, 3]),
        (Q, K),
        "TvmBatchMatMul",
        "permutation",
    ),
    "an operand's other permutation": (
        lambda q, k: tf.matmul(tf.transpose(q, [2, 1, 0, 3]), k, transpose_b=True),
        (tf.transpose(Q, [2, 1, 0, 3]), K),
        "TvmBatchMatMul",
        "permutation",
    ),
    "a permutation that is an input": (
        lambda q, k, p: tf.transpose(scores(q, k), p),
        (Q, K, tf.constant(SWAP)),
        "TvmBatchMatMul",
        "not_constant",
    ),
    "scaled after the sum": (
        lambda q, k, m: (scores(q, k) + m) * 2.0,
        (Q, K, MASK),
        "TvmBatchMatMulAdd",
        "order",
    ),
    "transposed after the sum": (
        lambda q, k, m: tf.transpose(scores(q, k) + m, SWAP),
        (Q, K, MASK),
        "TvmBatchMatMulAdd",
        "order",
    ),
    "summed after the transpose": (
        lambda p, v: tf.transpose(tf.matmul(p, v), SWAP) + 1.0,
        (P, V),
        "TvmBatchMatMulTranspose",
        "order",
    ),
    "a transposed operand used elsewhere": (
        lambda q, k: (lambda t: (scores(t, k), tf.nn.relu(t)))(tf.transpose(q, SWAP)),
        (QL, K),
        "TvmBatchMatMul",
        "consumers",
    ),
    "minus as much as the product": (
        lambda q, k, m: scores(q, k) - m,
        (Q, K, normal(2, 4, 5, 7)),
        "TvmBatchMatMul",
        "subtraction",
    ),
    "AddN of three": (
        lambda q, k, m: tf.raw_ops.AddN(inputs=[scores(q, k), m, m]),
        (Q, K, normal(2, 4, 5, 7)),
        "TvmBatchMatMul",
        "",
    ),
    "the product as divisor": (
        lambda q, k: 2.0 / scores(q, k),
        (tf.abs(Q) + 1, tf.abs(K) + 1),
        "TvmBatchMatMul",
        "",
    ),
    "softmax": (lambda q, k: tf.nn.softmax(scores(q, k)), (Q, K), "TvmBatchMatMul", ""),
}


@pytest.mark.parametrize("name", NOT_FUSED)
def test_not_fused(name: str) -> None:
    function, inputs, op, reason = NOT_FUSED[name]
    outcome = run(function, *inputs).only()
    assert (outcome.op, outcome.reason) == (op, reason)


WEIGHT = tf.Variable(normal(16, 8))

LEFT_ALONE: dict[str, tuple[Function, tuple[Any, ...], Any, str]] = {
    "a weight": (lambda x: tf.matmul(x, normal(16, 8)), (QL,), None, "projection"),
    "a weight of unknown shape": (
        lambda x, w: tf.matmul(x, w),
        (QL, normal(16, 8)),
        [tf.TensorSpec(None), tf.TensorSpec([None, None])],
        "projection",
    ),
    "a weight on the left": (
        lambda x, w: tf.matmul(w, x),
        (normal(3, 16, 8), normal(5, 16)),
        None,
        "projection",
    ),
    "a variable": (lambda x: tf.matmul(x, WEIGHT), (QL,), [tf.TensorSpec(None)], "projection"),
    "matrices": (
        lambda x, y: tf.raw_ops.BatchMatMulV2(x=x, y=y),
        (Q[0, 0], tf.transpose(K[0, 0])),
        None,
        "rank",
    ),
    "integers": (
        lambda x, y: tf.matmul(x, y),
        (tf.ones([2, 3, 4], tf.int32), tf.ones([2, 4, 5], tf.int32)),
        None,
        "dtype",
    ),
    "complex": (
        lambda x, y: tf.matmul(x, y, adjoint_b=True),
        (tf.complex(Q, Q), tf.complex(K, -K)),
        None,
        "dtype",
    ),
    "bytes to integers": (
        lambda x, y: tf.raw_ops.BatchMatMulV3(x=x, y=y, Tout=tf.int32),
        (tf.ones([2, 3, 4], tf.int8), tf.ones([2, 4, 5], tf.int8)),
        None,
        "dtype",
    ),
    # One dimension in thousands is none that oneDNN is bad at, and no pack has it.
    "a shape for stock": (
        lambda x, y: tf.matmul(x, y),
        (normal(2, 300, 301), normal(2, 301, 302)),
        None,
        "stock",
    ),
}


@pytest.mark.parametrize("name", LEFT_ALONE)
def test_left_alone(name: str) -> None:
    function, inputs, specs, reason = LEFT_ALONE[name]
    result = run(function, *inputs, specs=specs)
    assert not result.only().rewritten
    assert result.only().reason == reason


def test_control_edges_into_the_product_are_kept() -> None:
    counter = tf.Variable(0)

    def function(q: Any, k: Any) -> Any:
        with tf.control_dependencies([counter.assign_add(1)]):
            product = scores(q, k)
        with tf.control_dependencies([counter.assign_add(10)]):
            result = product * 2.0
        return result, counter.read_value()

    with rewrite.disabled():
        tf.function(function)(Q, K)
    counter.assign(0)
    result = tf.function(function)(Q, K)
    assert result[1] == 11
    assert counter.numpy() == 11


def test_what_waits_for_the_product_keeps_it() -> None:
    """A control edge out of the product would be lost with it."""
    graph = tf.Graph()
    with graph.as_default():
        q, k = tf.constant(Q.numpy()), tf.constant(K.numpy())
        product = tf.raw_ops.BatchMatMulV2(x=q, y=k, adj_y=True, name="product")
        with tf.control_dependencies([product]):
            tf.no_op(name="waits")
        tf.identity(product * 2.0, name="result")
    new, report = rewrite_graph_def(graph.as_graph_def(), ["result", "waits"])
    assert report.outcomes[0].reason == "control_edge"
    nodes = {node.name: node for node in new.node}
    assert nodes["product"].op == "TvmBatchMatMul"
    assert list(nodes["waits"].input) == ["^product"]


def test_a_node_on_another_device_is_not_fused() -> None:
    def function(q: Any, k: Any, m: Any) -> Any:
        with tf.device("/CPU:0"):
            product = scores(q, k)
        return product + m

    graph = tf.function(function).get_concrete_function(Q, K, MASK).graph.as_graph_def()
    for node in graph.node:
        if node.op == "AddV2":
            node.device = "/device:CPU:1"
    _, report = rewrite_graph_def(graph)
    assert report.outcomes[0].reason == "other_device"


def test_a_product_on_a_device_without_a_kernel_is_left_alone() -> None:
    graph = tf.function(scores).get_concrete_function(Q, K).graph.as_graph_def()
    for node in graph.node:
        if node.op == "BatchMatMulV2":
            node.device = "/device:TPU:0"
    new, report = rewrite_graph_def(graph)
    assert (report.outcomes[0].reason, report.outcomes[0].detail) == ("device", "TPU")
    assert new == graph
