"""What the rewriter fuses: what becomes of a graph, and its numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tf_tvm_ops import rewrite_graph_def

from .model_runs import ONEDNN_TAKES_FLOAT16
from .rewriting import KL, MASK, QL, SWAP, VL, K, P, Q, V, assert_same, normal, run, scores

Function = Callable[..., Any]


def raw_addn(q: Any, k: Any, m: Any) -> Any:
    return tf.raw_ops.AddN(inputs=[scores(q, k), m])


def depth_of_shape(x: Any) -> Any:
    return tf.math.sqrt(tf.cast(tf.shape(x)[-1], x.dtype))


# Name: function, inputs, op, parts.
FUSED: dict[str, tuple[Function, tuple[Any, ...], str, tuple[str, ...]]] = {
    "matmul": (scores, (Q, K), "TvmBatchMatMul", ()),
    "BatchMatMul": (
        lambda p, v: tf.raw_ops.BatchMatMul(x=p, y=v),
        (P, V),
        "TvmBatchMatMul",
        (),
    ),
    "BatchMatMulV3": (
        lambda p, v: tf.raw_ops.BatchMatMulV3(x=p, y=v, Tout=tf.float32),
        (P, V),
        "TvmBatchMatMul",
        (),
    ),
    "adjoints": (
        lambda q, k: tf.matmul(q, k, transpose_a=True, transpose_b=True),
        (tf.transpose(Q, [0, 1, 3, 2]), K),
        "TvmBatchMatMul",
        (),
    ),
    "times": (lambda q, k: scores(q, k) * 0.25, (Q, K), "TvmBatchMatMul", ("scale",)),
    "times from the left": (
        lambda q, k: 0.25 * scores(q, k),
        (Q, K),
        "TvmBatchMatMul",
        ("scale",),
    ),
    "divided": (lambda q, k: scores(q, k) / 3.0, (Q, K), "TvmBatchMatMul", ("scale",)),
    "divided by a root": (
        lambda q, k: scores(q, k) / tf.math.sqrt(tf.cast(tf.constant(16), tf.float32)),
        (Q, K),
        "TvmBatchMatMul",
        ("scale",),
    ),
    "divided by a root of a dimension": (
        lambda q, k: scores(q, k) / depth_of_shape(k),
        (Q, K),
        "TvmBatchMatMul",
        ("scale",),
    ),
    "scaled twice": (
        lambda q, k: scores(q, k) * 0.5 / 7.0,
        (Q, K),
        "TvmBatchMatMul",
        ("scale", "scale"),
    ),
    "scaled by a matrix of one": (
        lambda q, k: scores(q, k) * tf.constant([[0.3]], q.dtype),
        (Q, K),
        "TvmBatchMatMul",
        ("scale",),
    ),
    "plus": (lambda q, k, m: scores(q, k) + m, (Q, K, MASK), "TvmBatchMatMulAdd", ("addend",)),
    "plus from the left": (
        lambda q, k, m: m + scores(q, k),
        (Q, K, MASK),
        "TvmBatchMatMulAdd",
        ("addend",),
    ),
    "Add": (
        lambda q, k, m: tf.raw_ops.Add(x=scores(q, k), y=m),
        (Q, K, MASK),
        "TvmBatchMatMulAdd",
        ("addend",),
    ),
    "AddN": (raw_addn, (Q, K, normal(2, 4, 5, 7)), "TvmBatchMatMulAdd", ("addend",)),
    "BiasAdd": (
        lambda q, k, m: tf.nn.bias_add(scores(q, k), m),
        (Q, K, normal(7)),
        "TvmBatchMatMulAdd",
        ("addend",),
    ),
    "minus a mask": (
        lambda q, k, m: scores(q, k) - m,
        (Q, K, MASK),
        "TvmBatchMatMulAdd",
        ("addend",),
    ),
    "a mask minus": (
        lambda q, k, m: m - scores(q, k) * 0.5,
        (Q, K, MASK),
        "TvmBatchMatMulAdd",
        ("scale", "addend"),
    ),
    "scaled and plus": (
        lambda q, k, m: scores(q, k) / 4.0 + m,
        (Q, K, MASK),
        "TvmBatchMatMulAdd",
        ("scale", "addend"),
    ),
    "identities between": (
        lambda q, k, m: tf.identity(tf.identity(scores(q, k)) * 0.5) + m,
        (Q, K, MASK),
        "TvmBatchMatMulAdd",
        ("scale", "addend"),
    ),
    "transposed": (
        lambda p, v: tf.transpose(tf.matmul(p, v), SWAP),
        (P, V),
        "TvmBatchMatMulTranspose",
        ("transpose",),
    ),
    "transposed, counted from the end": (
        lambda p, v: tf.transpose(tf.matmul(p, v), [0, -2, 1, 3]),
        (P, V),
        "TvmBatchMatMulTranspose",
        ("transpose",),
    ),
    "transposed, rank 3": (
        lambda p, v: tf.transpose(tf.matmul(p, v), [1, 0, 2]),
        (P[0], V[0]),
        "TvmBatchMatMulTranspose",
        ("transpose",),
    ),
    "transposed, rank 5": (
        lambda p, v: tf.transpose(tf.matmul(p, v), [0, 1, 3, 2, 4]),
        (P[None], V[None]),
        "TvmBatchMatMulTranspose",
        ("transpose",),
    ),
    "scaled and transposed": (
        lambda p, v: tf.transpose(tf.matmul(p, v) * 3.0, SWAP),
        (P, V),
        "TvmBatchMatMulTranspose",
        ("scale", "transpose"),
    ),
    "transposed and scaled": (
        lambda p, v: tf.transpose(tf.matmul(p, v), SWAP) * 3.0,
        (P, V),
        "TvmBatchMatMulTranspose",
        ("transpose", "scale"),
    ),
    "matrices transposed": (
        lambda q, k, m: tf.transpose(scores(q, k), [0, 1, 3, 2]) + m,
        (K, Q, MASK),
        "TvmBatchMatMulAdd",
        ("matrix transpose", "addend"),
    ),
    "matrices transposed, then length and heads": (
        lambda q, k: tf.transpose(scores(q, k), [0, 3, 1, 2]),
        (Q, K),
        "TvmBatchMatMulTranspose",
        ("matrix transpose", "transpose"),
    ),
    "lhs transposed": (
        lambda q, k: scores(tf.transpose(q, SWAP), k),
        (QL, K),
        "TvmBatchMatMul",
        ("lhs transpose",),
    ),
    "rhs transposed": (
        lambda p, v: tf.matmul(p, tf.transpose(v, SWAP)),
        (P, VL),
        "TvmBatchMatMul",
        ("rhs transpose",),
    ),
    "rhs transposed to columns": (
        lambda q, k: tf.matmul(q, tf.transpose(k, [0, 2, 3, 1])),
        (Q, KL),
        "TvmBatchMatMul",
        ("rhs transpose",),
    ),
    "rhs matrices transposed": (
        lambda q, k: tf.matmul(q, tf.transpose(k, [0, 1, 3, 2])),
        (Q, K),
        "TvmBatchMatMul",
        ("rhs transpose",),
    ),
    "transposed twice": (
        lambda q, k: tf.matmul(q, tf.transpose(tf.transpose(k, SWAP), [0, 1, 3, 2])),
        (Q, KL),
        "TvmBatchMatMul",
        ("rhs transpose", "rhs transpose"),
    ),
    "everything transposed": (
        lambda q, k: tf.transpose(scores(tf.transpose(q, SWAP), tf.transpose(k, SWAP)), SWAP),
        (QL, KL),
        "TvmBatchMatMulTranspose",
        ("lhs transpose", "rhs transpose", "transpose"),
    ),
    "queries scaled": (
        lambda q, k: scores(tf.transpose(q * 0.25, SWAP), k / 3.0),
        (QL, K),
        "TvmBatchMatMul",
        ("lhs transpose", "lhs scale", "rhs scale"),
    ),
}


@pytest.mark.parametrize("name", FUSED)
def test_fused(name: str) -> None:
    function, inputs, op, parts = FUSED[name]
    result = run(function, *inputs)
    outcome = result.only()
    assert outcome.op == op
    assert outcome.parts == parts
    assert outcome.reason == ""
    for gone in ("BatchMatMulV2", "Mul", "RealDiv", "AddV2", "Transpose", "Sub"):
        assert gone not in result.ops


@pytest.mark.parametrize("name", FUSED)
def test_fused_with_unknown_shapes(name: str) -> None:
    function, inputs, op, parts = FUSED[name]
    specs = [tf.TensorSpec([None] * x.shape.rank, x.dtype) for x in inputs]
    outcome = run(function, *inputs, specs=specs).only()
    if name in ("AddN", "BiasAdd"):  # stock does not broadcast, so equal shapes must be known
        assert (outcome.op, outcome.reason) == ("TvmBatchMatMul", "broadcast")
    elif name == "minus a mask":  # it could be as large as the product, and has to be negated
        assert (outcome.op, outcome.reason) == ("TvmBatchMatMul", "subtraction")
    elif name == "divided by a root of a dimension":
        assert (outcome.op, outcome.reason) == ("TvmBatchMatMul", "not_constant")
    else:
        assert (outcome.op, outcome.parts) == (op, parts)


# Those without a dtype in their text.
OF_ANY_DTYPE = [name for name in FUSED if name not in ("BatchMatMulV3", "divided by a root")]


@pytest.mark.parametrize("name", OF_ANY_DTYPE)
@pytest.mark.parametrize("dtype", ["float64", "float16"])
def test_fused_in_other_dtypes(name: str, dtype: str) -> None:
    function, inputs, op, parts = FUSED[name]
    result = run(function, *(tf.cast(x, dtype) for x in inputs))
    arithmetic = any(part.split()[-1] in ("scale", "addend") for part in parts)
    if dtype == "float16" and ONEDNN_TAKES_FLOAT16 and arithmetic:
        assert "16_bit" in {outcome.reason for outcome in result.outcomes}
        assert not any(outcome.rewritten for outcome in result.outcomes)
    else:
        outcome = result.only()
        assert (outcome.op, outcome.parts) == (op, parts)


def test_the_scale_keeps_all_digits() -> None:
    factor = 1 / 3 + 1e-12

    def function(q: Any, k: Any) -> Any:
        return scores(q, k) * tf.constant(factor, tf.float64)

    q, k = tf.cast(Q, tf.float64), tf.cast(K, tf.float64)
    got = run(function, q, k).outputs.numpy()
    want = (q.numpy() @ np.swapaxes(k.numpy(), -1, -2)) * factor
    assert np.abs(got - want).max() < 1e-14 * np.abs(want).max()


def test_products_that_follow_each_other() -> None:
    """The result of one is an operand, or the addend, of the next."""

    def function(q: Any, k: Any, v: Any, w: Any) -> Any:
        values = tf.matmul(tf.nn.softmax(scores(q, k) * 0.25), v)
        chain = tf.matmul(tf.matmul(values, w), w)
        return tf.matmul(q, w) + chain * 0.1, tf.transpose(values, SWAP)

    result = run(function, Q, K, V, normal(2, 4, 16, 16))
    assert all(outcome.rewritten for outcome in result.outcomes)
    assert result.family() == ["TvmBatchMatMul"] * 4 + ["TvmBatchMatMulAdd"]


def test_a_transpose_between_two_products_is_fused_with_one() -> None:
    def function(p: Any, v: Any) -> Any:
        heads_last = tf.transpose(tf.matmul(p, v), SWAP)
        return tf.matmul(heads_last, heads_last[..., :7, :], transpose_b=True)

    run(function, P, V)

    def chained(p: Any, v: Any, w: Any) -> Any:
        return tf.matmul(tf.transpose(tf.matmul(p, v), SWAP), w)

    result = run(chained, P, V, normal(2, 5, 16, 3))
    assert sorted(len(outcome.parts) for outcome in result.outcomes) == [0, 1]
    assert "Transpose" not in result.ops


def test_bfloat16_is_scaled_where_a_pack_has_a_kernel() -> None:
    """Elsewhere oneDNN is left to fuse what follows by itself."""

    def function(q: Any, k: Any) -> Any:
        return scores(q, k) * 0.25

    known = [normal(2, 12, 128, 64, dtype="bfloat16", seed=i) for i in (1, 2)]
    outcome = run(function, *known).only()
    assert (outcome.op, outcome.parts) == ("TvmBatchMatMul", ("scale",))
    specs = [tf.TensorSpec([None] * 4, tf.bfloat16)] * 2
    outcome = run(function, *known, specs=specs).only()
    # Rewritten where oneDNN does not take bfloat16.
    assert (outcome.rewritten, outcome.reason) in [(False, "16_bit"), (True, "")]
    # Without a scale the op decides when it runs.
    assert run(scores, *known, specs=specs).only().rewritten


@pytest.mark.parametrize("op", ["_MklFusedBatchMatMulV2"])
def test_what_the_remapper_fused(op: str) -> None:
    graph = tf.Graph()
    with graph.as_default():
        q = tf.compat.v1.placeholder(tf.float32, [2, 4, 5, 16], "q")
        k = tf.compat.v1.placeholder(tf.float32, [2, 4, 7, 16], "k")
        m = tf.compat.v1.placeholder(tf.float32, [2, 1, 1, 7], "m")
        result = tf.add(tf.multiply(tf.constant(0.25, name="c"), scores(q, k)), m, name="result")
        want = tf.compat.v1.Session().run(result, {q: Q.numpy(), k: K.numpy(), m: MASK.numpy()})
    stock = graph.as_graph_def()
    fused = tf.compat.v1.GraphDef()
    for node in stock.node:
        if node.op in ("Placeholder", "Const"):
            fused.node.add().CopyFrom(node)
    node = fused.node.add(name="result", op=op, input=["q", "k", "c", "m"])
    node.attr["T"].type = tf.float32.as_datatype_enum
    node.attr["adj_x"].b = False
    node.attr["adj_y"].b = True
    node.attr["num_args"].i = 2
    node.attr["fused_ops"].list.s.extend([b"Mul", b"Add"])
    node.attr["epsilon"].f = 0.0001
    node.attr["leakyrelu_alpha"].f = 0.2
    new, report = rewrite_graph_def(fused, ["result"])
    (outcome,) = report
    assert (outcome.op, outcome.parts) == ("TvmBatchMatMulAdd", ("scale", "addend"))
    with tf.Graph().as_default() as imported:
        tf.import_graph_def(new, name="")
        with tf.compat.v1.Session(graph=imported) as session:
            got = session.run("result:0", {"q:0": Q.numpy(), "k:0": K.numpy(), "m:0": MASK.numpy()})
    assert_same(tf.constant(got), tf.constant(want))
    node.attr["fused_ops"].list.s[:] = [b"Mul", b"Relu"]
    left, report = rewrite_graph_def(fused, ["result"])
    assert report.outcomes[0].reason == "fused_ops"
    assert left == fused
