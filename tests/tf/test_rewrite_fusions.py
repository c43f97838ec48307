"""Each fusion and each guard of the rewriter: what becomes of a graph, and its numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tf_tvm_ops import rewrite, rewrite_graph_def

from .rewriting import assert_same, normal, run

Function = Callable[..., Any]

# [batch, heads, length, depth] and as a dense layer leaves them, [batch, length, heads, depth].
Q, K, V = normal(2, 4, 5, 16), normal(2, 4, 7, 16, seed=1), normal(2, 4, 7, 16, seed=2)
QL, KL, VL = (tf.transpose(x, [0, 2, 1, 3]) for x in (Q, K, V))
P = normal(2, 4, 5, 7, seed=3)
MASK = normal(2, 1, 1, 7, seed=4)
SWAP = [0, 2, 1, 3]


def scores(q: Any, k: Any) -> Any:
    """The product that most of these begin with."""
    return tf.matmul(q, k, transpose_b=True)


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
    outcome = run(function, *(tf.cast(x, dtype) for x in inputs)).only()
    assert (outcome.op, outcome.parts) == (op, parts)


def test_the_scale_keeps_all_digits() -> None:
    factor = 1 / 3 + 1e-12

    def function(q: Any, k: Any) -> Any:
        return scores(q, k) * tf.constant(factor, tf.float64)

    q, k = tf.cast(Q, tf.float64), tf.cast(K, tf.float64)
    got = run(function, q, k).outputs.numpy()
    want = (q.numpy() @ np.swapaxes(k.numpy(), -1, -2)) * factor
    assert np.abs(got - want).max() < 1e-14 * np.abs(want).max()


# Every product of rows m and columns n over k in batches b and h, and Keras' equations with two
# renamings.
EINSUMS = {
    "bhmk,bhkn->bhmn": (),
    "bhmk,bhnk->bhmn": (),
    "bhkm,bhkn->bhmn": (),
    "bmhk,bhkn->bhmn": ("lhs transpose",),
    "bmhk,bnhk->bhmn": ("lhs transpose", "rhs transpose"),
    "bkhm,bkhn->bhmn": ("lhs transpose", "rhs transpose"),
    "bhmk,bkhn->bmhn": ("rhs transpose", "transpose"),
    "bhkn,bhmk->bhmn": (),
    "aecd,abcd->acbe": ("lhs transpose", "rhs transpose"),
    "acbe,aecd->abcd": ("rhs transpose", "transpose"),
    "BTNH,BSNH->BNTS": ("lhs transpose", "rhs transpose"),
    "BNTS,BSNH->BTNH": ("rhs transpose", "transpose"),
    "bmk,bkn->bmn": (),
    "mbk,bkn->mbn": ("lhs transpose", "transpose"),
    "xybhmk,xybhkn->xybhmn": (),
}


def _for_equation(equation: str) -> tuple[Any, Any]:
    """Random operands; each label has an extent of its own."""
    lhs, rhs = equation.split("->")[0].split(",")
    extents = {label: 2 + i for i, label in enumerate(sorted({*lhs, *rhs}))}
    return tuple(normal(*(extents[label] for label in x)) for x in (lhs, rhs))  # type: ignore[return-value]


@pytest.mark.parametrize("equation", EINSUMS)
@pytest.mark.parametrize("known", [True, False])
def test_einsum(equation: str, known: bool) -> None:
    x, y = _for_equation(equation)
    specs = None if known else [tf.TensorSpec(None, t.dtype) for t in (x, y)]
    outcome = run(
        lambda x, y: tf.raw_ops.Einsum(inputs=[x, y], equation=equation), x, y, specs=specs
    ).only()
    transposed = "transpose" in EINSUMS[equation]
    assert outcome.op == ("TvmBatchMatMulTranspose" if transposed else "TvmBatchMatMul")
    assert outcome.parts == EINSUMS[equation]


def test_einsum_with_scale_and_addend() -> None:
    def function(k: Any, q: Any, m: Any) -> Any:
        return tf.einsum("aecd,abcd->acbe", k, q) * 0.25 + m

    outcome = run(function, KL, QL, MASK).only()
    assert outcome.op == "TvmBatchMatMulAdd"
    assert outcome.parts == ("lhs transpose", "rhs transpose", "scale", "addend")


NO_PRODUCTS = {
    "bhmk,kn->bhmn": "projection",
    "abc,cde->abde": "projection",
    "abcd,cde->abe": "projection",
    "ab,c->abc": "projection",
    "bhmk,bhk->bhm": "equation",
    "bhmxk,bhkn->bhmxn": "equation",
    "bhmk,bhkn->bhnm": None,  # the operands swapped
    "bhmk,hbkn->bhmn": "equation",
    "hmkb,hkbn->hmnb": "equation",
    "bhmkx,bhkn->bhmn": "equation",
    "bhmk,bhknx->bhmn": "equation",
    "...mk,...kn->...mn": "equation",
    "bhmk->bhm": "equation",
    "bmm,bmn->bmn": "equation",
}


@pytest.mark.parametrize("equation", NO_PRODUCTS)
def test_einsum_that_is_no_product_of_the_ops(equation: str) -> None:
    if "..." in equation:
        x, y = _for_equation("bhmk,bhkn->bhmn")
    elif "," not in equation:
        x, y = _for_equation("bhmk,bhmk->bhm")
    else:
        x, y = _for_equation(equation)
    inputs = [x, y] if "," in equation else [x]
    result = run(lambda *t: tf.raw_ops.Einsum(inputs=list(t), equation=equation), *inputs)
    reason = NO_PRODUCTS[equation]
    assert result.only().reason == (reason or "")
    assert result.only().rewritten is (reason is None)


def test_einsum_refuses_batches_that_differ() -> None:
    """Stock has an error where BatchMatMulV2 would broadcast; so has the op that replaces it."""
    x, y = normal(1, 4, 5, 16), normal(2, 4, 16, 7)
    specs = [tf.TensorSpec([None] * 4)] * 2

    @tf.function(input_signature=specs)
    def function(x: Any, y: Any) -> Any:
        return tf.raw_ops.Einsum(inputs=[x, y], equation="bhmk,bhkn->bhmn")

    with pytest.raises(tf.errors.InvalidArgumentError, match=r"\[1,4,5,16\].*\[2,4,16,7\]"):
        function(x, y)


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
