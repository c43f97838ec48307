"""What the rewriter must not do: errors, ranks, remote work, feeds, threads, many products."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tf_tvm_ops import rewrite

from .processes import output_with_tensorflow
from .rewriting import assert_same, normal, run

SWAP = [0, 2, 1, 3]
UNKNOWN = tf.TensorSpec(None)

# Functions and inputs for which stock has an error that is known only when they run.
ERRORS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "einsum, rank": (
        lambda x, y: tf.raw_ops.Einsum(inputs=[x, y], equation="bhmk,bhkn->bhmn"),
        (normal(4, 2, 3), normal(4, 3, 2)),
    ),
    "einsum, ranks that differ": (
        lambda x, y: tf.raw_ops.Einsum(inputs=[x, y], equation="bmk,bkn->bmn"),
        (normal(4, 2, 3), normal(2, 4, 3, 2)),
    ),
    "operand transposed, rank": (
        lambda x, y: tf.matmul(tf.transpose(x, SWAP), y),
        (normal(4, 2, 3), normal(2, 3, 5)),
    ),
    "transposed, rank": (
        lambda x, y: tf.transpose(tf.matmul(x, y), SWAP),
        (normal(2, 4, 3), normal(2, 3, 5)),
    ),
    "transposed, a larger rank": (
        lambda x, y: tf.transpose(tf.matmul(x, y), [0, 2, 1]),
        (normal(1, 2, 4, 3), normal(1, 2, 3, 5)),
    ),
    "a bias for other columns": (
        lambda x, y: tf.nn.bias_add(tf.matmul(x, y), tf.ones([7])),
        (normal(2, 3, 4), normal(2, 4, 1)),
    ),
    "batches that BatchMatMul does not broadcast": (
        lambda x, y: tf.raw_ops.BatchMatMul(x=x, y=y),
        (normal(1, 3, 4), normal(2, 4, 3)),
    ),
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors_of_stock_stay_errors(name: str) -> None:
    function, inputs = ERRORS[name]
    specs = [UNKNOWN] * len(inputs)
    with rewrite.disabled(), pytest.raises(tf.errors.InvalidArgumentError):
        tf.function(function, input_signature=specs)(*inputs)
    rewrite.clear_report()
    with pytest.raises(tf.errors.InvalidArgumentError):
        tf.function(function, input_signature=specs)(*inputs)
    assert rewrite.report().rewritten


def test_a_factor_that_makes_the_rank() -> None:
    def function(x: Any, y: Any) -> Any:
        return tf.matmul(x * tf.constant([[0.5]]), y)

    run(function, normal(4), normal(2, 4, 5), specs=[UNKNOWN] * 2)


def test_a_fed_constant_with_the_grappler_optimizer() -> None:
    tf1 = tf.compat.v1
    config = tf1.ConfigProto()
    config.graph_options.rewrite_options.custom_optimizers.add(name="tf_tvm_ops")
    config.graph_options.rewrite_options.min_graph_nodes = -1
    x = normal(2, 4, 5, 16).numpy()
    with tf.Graph().as_default():
        q = tf1.placeholder(tf.float32, x.shape)
        factor = tf.constant(0.25)
        product = tf.matmul(q, q, transpose_b=True)
        scaled = product * factor
        with tf1.Session(config=config) as session:
            got = session.run([scaled, product], {q: x, factor: np.float32(3)})
            alone = session.run(scaled, {product: np.ones((2, 4, 5, 5), np.float32)})
    assert_same(got[0], got[1] * np.float32(3))
    assert (alone == 0.25).all()


WORKER = """
import tensorflow as tf
server = tf.distribute.Server({"worker": ["localhost:0"]}, "worker", 0)
print(server.target, flush=True)
server.join()
"""


def test_work_in_other_processes_is_left_alone() -> None:
    """They may not have the library."""
    worker = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(WORKER)], stdout=subprocess.PIPE, text=True
    )
    try:
        assert worker.stdout is not None
        address = worker.stdout.readline().strip().removeprefix("grpc://")
        printed = output_with_tensorflow(
            f"""
            import tensorflow as tf, tf_tvm_ops
            tf_tvm_ops.load()
            tf.config.experimental_connect_to_host({address!r})

            @tf.function
            def function(x):
                with tf.device("/job:worker/replica:0/task:0/device:CPU:0"):
                    return tf.matmul(x, x, transpose_b=True) * 0.5

            print(float(function(tf.ones([2, 3, 4, 4]))[0, 0, 0, 0]))
            print({{o.reason for o in tf_tvm_ops.rewrite.report()}})
            """
        )
    finally:
        worker.kill()
        worker.wait()
    assert printed.splitlines() == ["2.0", "{'remote'}"]


def test_blocks_without_rewriting_in_several_threads() -> None:
    inside = threading.Barrier(2)
    left = threading.Event()

    def first() -> None:
        with rewrite.disabled():
            inside.wait()
        left.set()

    thread = threading.Thread(target=first)
    thread.start()
    with rewrite.disabled():
        inside.wait()
        left.wait()
        assert not rewrite.enabled()
    thread.join()
    assert rewrite.enabled()


def test_a_weight_in_a_loop_is_a_weight() -> None:
    """In a loop that is lowered it comes through nodes that hide its shape."""
    weight = normal(16, 16)

    def function(x: Any, w: Any) -> Any:
        return tf.while_loop(
            lambda i, _: i < 3, lambda i, x: (i + 1, tf.tanh(tf.matmul(x, w) + 1.0)), (0, x)
        )[1]

    specs = [tf.TensorSpec([None, None, 16]), tf.TensorSpec([16, 16])]
    result = run(function, normal(2, 5, 16), weight, specs=specs)
    assert {outcome.reason for outcome in result.outcomes} == {"projection"}
    result = run(lambda x: function(x, weight * 1.0), normal(2, 5, 16), specs=specs[:1])
    assert {outcome.reason for outcome in result.outcomes} == {"projection"}


def test_many_products_in_one_graph() -> None:
    """Each function is looked at twice, which must not take longer the more there are."""

    def seconds(products: int) -> float:
        def function(x: Any) -> Any:
            weight = tf.eye(4)
            for _ in range(products):
                x = tf.raw_ops.BatchMatMulV2(x=x, y=weight)
            return x

        before = rewrite.cost()
        tf.function(function, autograph=False)(tf.ones([2, 3, 4, 4]))
        after = rewrite.cost()
        assert after.nodes - before.nodes >= products
        return after.seconds - before.seconds

    seconds(10)
    few, many = seconds(100), seconds(4000)
    # Linear would be 40 times, quadratic 1,600.
    assert many < 400 * max(few, 1e-3)
