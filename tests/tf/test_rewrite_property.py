"""Random graphs of the ops that the rewriter is about: every fetch is as before."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from tf_tvm_ops import rewrite, rewrite_graph_def

# All dimensions are equal, so that every op takes every tensor; a dimension that is taken for
# another shows in the numbers.
N = 3
SHAPE = (N, N, N, N)
EQUATIONS = (
    "bhmk,bhkn->bhmn",
    "bmhk,bnhk->bhmn",
    "bhmk,bkhn->bmhn",
    "aecd,abcd->acbe",
    "acbe,aecd->abcd",
    "bhkm,bkhn->bhnm",
    "bhmk,hbkn->bhmn",
)
PERMUTATIONS = ((0, 2, 1, 3), (0, 1, 3, 2), (0, 2, 3, 1), (0, 3, 1, 2), (1, 0, 2, 3))
ADDENDS = ((N,), (N, 1), (1, N, N), (N, 1, 1, N), SHAPE, ())


def constant(shape: tuple[int, ...], seed: int) -> tf.Tensor:
    """Random numbers, the same for the same seed."""
    return tf.constant(np.random.default_rng(seed).standard_normal(shape))


# One node: draws what it needs and takes tensors from those made so far.
Pick = Callable[[], Any]


def product(draw: Any, pick: Pick) -> Any:
    x, y, adj_x, adj_y = pick(), pick(), draw(st.booleans()), draw(st.booleans())
    version = draw(st.sampled_from((1, 2, 3)))
    if version == 3:
        return tf.raw_ops.BatchMatMulV3(x=x, y=y, Tout=x.dtype, adj_x=adj_x, adj_y=adj_y)
    op = tf.raw_ops.BatchMatMul if version == 1 else tf.raw_ops.BatchMatMulV2
    return op(x=x, y=y, adj_x=adj_x, adj_y=adj_y)


def einsum(draw: Any, pick: Pick) -> Any:
    equation = draw(st.sampled_from(EQUATIONS))
    return tf.raw_ops.Einsum(inputs=[pick(), pick()], equation=equation)


def factor(draw: Any, pick: Pick) -> Any:
    x = pick()
    value = tf.constant(draw(st.sampled_from((0.5, -3.0, 1 / 3, 0.0))), x.dtype)
    return draw(st.sampled_from((x * value, value * x, x / (value + 7.0))))


def addend(draw: Any, pick: Pick) -> Any:
    x = pick()
    if draw(st.booleans()):
        y = pick()
    else:
        y = constant(draw(st.sampled_from(ADDENDS)), draw(st.integers(0, 9)))
    kind = draw(st.sampled_from(("add", "left", "sub", "left sub", "addn", "bias")))
    if kind == "addn":
        return tf.raw_ops.AddN(inputs=[x, tf.broadcast_to(y, SHAPE)])
    if kind == "bias":
        return tf.nn.bias_add(x, tf.reshape(tf.broadcast_to(y, SHAPE)[0, 0, 0], [N]))
    left, right = (y, x) if kind.startswith("left") else (x, y)
    return left - right if kind.endswith("sub") else left + right


def transpose(draw: Any, pick: Pick) -> Any:
    return tf.transpose(pick(), draw(st.sampled_from(PERMUTATIONS)))


def other(draw: Any, pick: Pick) -> Any:
    function = draw(st.sampled_from((tf.identity, tf.nn.softmax, tf.tanh)))
    return function(pick())


NODES = (product, product, einsum, factor, addend, transpose, other)


@settings(deadline=None)
@given(data=st.data(), known=st.booleans())
def test_random_graphs(data: st.DataObject, known: bool) -> None:
    graph = tf.Graph()
    with graph.as_default():
        shape = SHAPE if known else None
        inputs = [tf.compat.v1.placeholder(tf.float64, shape, f"in{i}") for i in range(2)]
        # The last of them is picked most often, so that chains are long.
        tensors = [tf.ensure_shape(x, [None] * 4) for x in inputs]

        def pick() -> Any:
            back = data.draw(st.sampled_from((1, 1, 1, 1, 2, 3)))
            return tensors[-min(back, len(tensors))]

        for _ in range(data.draw(st.integers(3, 14))):
            node = data.draw(st.sampled_from(NODES))
            tensors.append(node(data.draw, pick))
        fetches = [tensors[-1], *data.draw(st.lists(st.sampled_from(tensors), max_size=2))]
    feeds = {x.name: constant(SHAPE, i).numpy() for i, x in enumerate(inputs)}
    names = [x.name for x in fetches]
    stored = graph.as_graph_def()
    once, report = rewrite_graph_def(stored, names)
    twice, again = rewrite_graph_def(once, names)
    assert not again.rewritten
    assert twice == once
    back, _ = rewrite_graph_def(once, names, revert=True)
    assert not any(node.op.startswith("Tvm") for node in back.node)
    words = {"", *rewrite.reasons()}
    assert all(outcome.reason in words for outcome in report)

    with rewrite.disabled():
        want = run(stored, names, feeds)
        for rewritten in (once, back):
            assert_near(run(rewritten, names, feeds), want)
    assert_near(run(stored, names, feeds), want)


def run(graph: Any, fetches: list[str], feeds: dict[str, Any]) -> list[Any]:
    """What a session gives for a stored graph."""
    with tf.Graph().as_default() as imported:
        tf.import_graph_def(graph, name="")
        with tf.compat.v1.Session(graph=imported) as session:
            return list(session.run(fetches, feeds))


def assert_near(got: list[Any], want: list[Any]) -> None:
    """Chains of products enlarge roundings, but not to anything near a wrong dimension."""
    for x, y in zip(got, want):
        assert x.shape == y.shape
        finite = np.isfinite(y)
        np.testing.assert_array_equal(np.isfinite(x), finite)
        scale = np.abs(y[finite]).max(initial=1e-300)
        np.testing.assert_allclose(x[finite] / scale, y[finite] / scale, rtol=0, atol=1e-9)
