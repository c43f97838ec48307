"""Where TensorFlow sets up graphs, the rewriter is called; and it can be switched off."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tf_tvm_ops import rewrite

from .processes import output_of, output_with_tensorflow, own_messages, run_with_tensorflow
from .rewriting import assert_same, executed_ops, normal, run

Q, K, MASK = normal(2, 4, 5, 16), normal(2, 4, 7, 16, seed=1), normal(2, 1, 1, 7)
MASK_ARRAY = MASK.numpy()
FEED = {"q:0": Q.numpy(), "k:0": K.numpy(), "m:0": MASK_ARRAY}


def masked_scores(q: Any, k: Any, m: Any) -> Any:
    """What becomes one TvmBatchMatMulAdd."""
    return tf.matmul(q, k, transpose_b=True) * 0.25 + m


@pytest.fixture(autouse=True)
def no_earlier_report() -> None:
    rewrite.clear_report()


@pytest.fixture
def want() -> Any:
    with rewrite.disabled():
        return tf.function(masked_scores)(Q, K, MASK)


def placeholders() -> Any:
    """The same in the default graph, with names."""
    q = tf.compat.v1.placeholder(tf.float32, [None, 4, None, 16], "q")
    k = tf.compat.v1.placeholder(tf.float32, [None, 4, None, 16], "k")
    m = tf.compat.v1.placeholder(tf.float32, None, "m")
    product = tf.matmul(q, k, transpose_b=True, name="product")
    return tf.add(tf.multiply(product, 0.25, name="scaled"), m, name="sum")


def executed_in(session: Any, fetches: Any) -> tuple[Any, list[str]]:
    """What a session gives, and the ops of the family that it ran."""
    options = tf.compat.v1.RunOptions(output_partition_graphs=True)
    metadata = tf.compat.v1.RunMetadata()
    values = session.run(fetches, FEED, options=options, run_metadata=metadata)
    ops = [node.op for graph in metadata.partition_graphs for node in graph.node]
    return values, sorted(op for op in ops if op.startswith("Tvm"))


def test_a_session(want: Any) -> None:
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        placeholders()
        got, ops = executed_in(session, "sum:0")
        assert ops == ["TvmBatchMatMulAdd"]
        assert_same(got, want)


def test_a_session_that_fetches_what_was_fused(want: Any) -> None:
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        placeholders()
        (total, product), _ = executed_in(session, ["sum:0", "product:0"])
        assert_same(total, want)
        alone, scaled = session.run(["product:0", "scaled:0"], FEED)
        assert_same(alone * np.float32(0.25), scaled)
        assert_same(product, alone)
        assert_same(scaled + MASK_ARRAY, want)


def test_a_session_that_feeds_what_was_fused(want: Any) -> None:
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        placeholders()
        product = np.ones((2, 4, 5, 7), np.float32)
        got = session.run("sum:0", {"product:0": product, **FEED})
        assert_same(got, product * 0.25 + MASK_ARRAY)
        got = session.run("sum:0", FEED)
        assert_same(got, want)


def test_a_session_whose_graph_grows(want: Any) -> None:
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        total = placeholders()
        session.run(total, FEED)
        more = tf.nn.relu(total, name="more")
        product = session.graph.get_tensor_by_name("product:0")
        got = session.run([more, total, tf.exp(product)], FEED)
        assert_same(got[1], want)
        assert_same(got[0], np.maximum(want.numpy(), 0))


def test_each_graph_of_each_session_is_reported() -> None:
    for _ in range(2):
        with tf.Graph().as_default(), tf.compat.v1.Session() as session:
            placeholders()
            session.run("sum:0", FEED)
            session.run("scaled:0", FEED)
    report = rewrite.report()
    assert len({outcome.graph for outcome in report}) == len(report) == 4


def test_nested_functions_branches_and_loops(want: Any) -> None:
    inner = tf.function(masked_scores)

    def nested(q: Any, k: Any, m: Any) -> Any:
        return tf.function(lambda *x: inner(*x))(q, k, m)

    def branch(q: Any, k: Any, m: Any) -> Any:
        return tf.cond(tf.reduce_sum(q) < 1e9, lambda: masked_scores(q, k, m), lambda: q @ q)

    def loop(q: Any, k: Any, m: Any) -> Any:
        return tf.while_loop(
            lambda i, x: i < 3,
            lambda i, x: (i + 1, x * 0.5 + masked_scores(q, k, m)),
            (0, tf.zeros([2, 4, 5, 7])),
        )[1]

    for function in (nested, loop):
        result = run(function, Q, K, MASK)
        assert "TvmBatchMatMulAdd" in {outcome.op for outcome in result.outcomes}
    square = normal(2, 4, 5, 5, seed=9)
    result = run(branch, square, square, normal(2, 1, 1, 5))
    assert {outcome.op for outcome in result.outcomes} == {"TvmBatchMatMul", "TvmBatchMatMulAdd"}


def test_a_loop_of_a_session_with_control_flow_of_version_1() -> None:
    def build() -> Any:
        q = tf.compat.v1.placeholder(tf.float32, Q.shape, "q")
        k = tf.compat.v1.placeholder(tf.float32, K.shape, "k")
        m = tf.compat.v1.placeholder(tf.float32, MASK.shape, "m")

        def body(i: Any, x: Any) -> Any:
            product = tf.matmul(q, k + x[0, 0, 0, 0], transpose_b=True)
            return i + 1, x * 0.5 + (m - product / 3.0)

        return tf.while_loop(lambda i, x: i < 3, body, (0, tf.zeros([2, 4, 5, 7])))[1]

    values = []
    for enabled in (False, True):
        (rewrite.enable if enabled else rewrite.disable)()
        with tf.Graph().as_default():
            tf.compat.v1.disable_control_flow_v2()
            try:
                result = build()
            finally:
                tf.compat.v1.enable_control_flow_v2()
            with tf.compat.v1.Session() as session:
                value, ops = executed_in(session, result)
                values.append(value)
    assert_same(values[1], values[0])
    assert ops == ["TvmBatchMatMulAdd"]


def test_functions_that_are_not_inlined(want: Any) -> None:
    inner = tf.function(masked_scores, experimental_attributes={"_noinline": True})
    got = tf.function(lambda *x: inner(*x))(Q, K, MASK)
    assert_same(got, want)
    assert [outcome.op for outcome in rewrite.report()] == ["TvmBatchMatMulAdd"]


def test_a_data_set(want: Any) -> None:
    data = tf.data.Dataset.from_tensors((Q, K, MASK)).map(masked_scores)
    for got in data:
        assert_same(got, want)


class Served(tf.Module):
    @tf.function(input_signature=[tf.TensorSpec([None, 4, None, 16])] * 2 + [tf.TensorSpec(None)])
    def __call__(self, q: Any, k: Any, m: Any) -> Any:
        return {"sum": masked_scores(q, k, m)}


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = str(tmp_path_factory.mktemp("saved") / "model")
    module = Served()
    tf.saved_model.save(module, path, signatures={"serving_default": module.__call__})
    return path


def test_a_loaded_saved_model(saved: str, want: Any) -> None:
    with executed_ops() as ops:
        got = tf.saved_model.load(saved)(Q, K, MASK)["sum"]
    assert_same(got, want)
    assert ops["TvmBatchMatMulAdd"] == 1


def test_a_saved_model_in_a_session(saved: str, want: Any) -> None:
    """As servers run it: the functions are inlined after placement, by Grappler."""
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        meta = tf.compat.v1.saved_model.load(session, ["serve"], saved)
        signature = meta.signature_def["serving_default"]
        names = {key: info.name for key, info in signature.inputs.items()}
        feed = {names["q"]: Q.numpy(), names["k"]: K.numpy(), names["m"]: MASK.numpy()}
        options = tf.compat.v1.RunOptions(output_partition_graphs=True)
        metadata = tf.compat.v1.RunMetadata()
        got = session.run(
            signature.outputs["sum"].name, feed, options=options, run_metadata=metadata
        )
    assert_same(got, want)
    ops = [node.op for graph in metadata.partition_graphs for node in graph.node]
    assert "BatchMatMulV2" not in ops
    assert "_MklFusedBatchMatMulV2" not in ops


def test_a_saved_model_written_afterwards_holds_stock_ops(saved: str) -> None:
    nodes = Path(saved, "saved_model.pb").read_bytes()
    tf.saved_model.load(saved)(Q, K, MASK)
    assert b"BatchMatMulV2" in nodes
    assert b"Tvm" not in nodes


def test_keras_predict() -> None:
    import keras

    inputs = keras.Input((7, 32))
    layer = keras.layers.MultiHeadAttention(4, 8)
    model = keras.Model(inputs, layer(inputs, inputs))
    x = normal(3, 7, 32).numpy()
    with rewrite.disabled():
        want = model.predict(x, verbose=0)
    model.predict_function = None
    rewrite.clear_report()
    got = model.predict(x, verbose=0)
    assert_same(got, want)
    ops = [outcome.op for outcome in rewrite.report() if "einsum" in outcome.product]
    assert ops == ["TvmBatchMatMul", "TvmBatchMatMulTranspose"]


def test_gradients_of_a_training_step() -> None:
    def step(q: Any, k: Any, m: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch([q, k, m])
            loss = tf.reduce_sum(tf.nn.softmax(masked_scores(q, k, m)) ** 2)
        return [loss, *tape.gradient(loss, [q, k, m])]

    result = run(step, Q, K, MASK)
    assert result.outputs[3].shape == MASK.shape
    assert result.ops["TvmBatchMatMulAdd"] == 1
    assert not result.ops["BatchMatMulV2"]


def test_under_jit_compile_nothing_is_rewritten(want: Any) -> None:
    got = tf.function(masked_scores, jit_compile=True)(Q, K, MASK)
    assert_same(got, want)
    assert all(outcome.reason == "xla" for outcome in rewrite.report())


def test_auto_clustering_is_left_to_xla() -> None:
    code = """
        import tensorflow as tf, tf_tvm_ops
        tf_tvm_ops.load()
        if {by_option}:
            tf.config.optimizer.set_jit(True)
        x = tf.ones([2, 4, 5, 16])
        tf.function(lambda x: tf.matmul(x, x, transpose_b=True) * 0.25)(x)
        print([(o.rewritten, o.reason) for o in tf_tvm_ops.rewrite.report()])
    """
    for flags, by_option in (("--tf_xla_auto_jit=2", False), ("", True)):
        printed = output_of(code.format(by_option=by_option), TF_XLA_FLAGS=flags)
        assert printed == "[(False, 'xla')]"


def config_with_optimizer() -> Any:
    config = tf.compat.v1.ConfigProto()
    options = config.graph_options.rewrite_options
    options.custom_optimizers.add(name="tf_tvm_ops")
    options.min_graph_nodes = -1
    return config


def test_the_grappler_optimizer_by_itself() -> None:
    """Run by itself, on a graph that the automatic passes do not see."""
    from tensorflow.python.grappler import tf_optimizer

    with tf.Graph().as_default() as graph:
        total = placeholders()
        tf.compat.v1.add_to_collection("train_op", total)
        meta = tf.compat.v1.train.export_meta_graph(graph=graph)
    config = config_with_optimizer()
    config.graph_options.rewrite_options.optimizers.append("tf_tvm_ops")
    optimized = tf_optimizer.OptimizeGraph(config, meta)
    ops = {node.name: node.op for node in optimized.node}
    assert ops["sum"] == "TvmBatchMatMulAdd"
    assert "product" not in ops
    assert any(outcome.graph.endswith("(Grappler)") for outcome in rewrite.report())


def test_what_the_grappler_optimizer_rewrote_is_left_alone(want: Any) -> None:
    with tf.Graph().as_default(), tf.compat.v1.Session(config=config_with_optimizer()) as session:
        placeholders()
        got, ops = executed_in(session, "sum:0")
    assert ops == ["TvmBatchMatMulAdd"]
    assert_same(got, want)
    (outcome,) = rewrite.report()
    assert outcome.graph.endswith("(Grappler)")


def test_disable_and_enable(want: Any) -> None:
    assert rewrite.enabled()
    with rewrite.disabled():
        assert not rewrite.enabled()
        with executed_ops() as ops:
            tf.function(masked_scores)(Q, K, MASK)
    assert not ops["TvmBatchMatMulAdd"]
    assert len(rewrite.report()) == 0
    assert rewrite.enabled()
    rewrite.disable()
    assert not rewrite.enabled()
    rewrite.enable()
    assert rewrite.enabled()


CODE = """
    import tensorflow as tf, tf_tvm_ops
    {load}
    x = tf.ones([2, 4, 5, 16])
    tf.function(lambda x: tf.matmul(x, x, transpose_b=True) * 0.25)(x)
    print(len(tf_tvm_ops.rewrite.report()), tf_tvm_ops.rewrite.enabled())
"""


@pytest.mark.parametrize(
    "load", ["tf_tvm_ops.load()", "tf.load_op_library(tf_tvm_ops.library_path())"]
)
def test_on_from_loading(load: str) -> None:
    assert output_with_tensorflow(CODE.format(load=load)) == "1 True"
    assert output_with_tensorflow(CODE.format(load=load), TF_TVM_OPS_REWRITE="off") == "0 False"


def test_not_before_loading() -> None:
    printed = output_with_tensorflow("""
        import tensorflow as tf, tf_tvm_ops
        x = tf.ones([2, 4, 5, 16])
        tf.function(lambda x: tf.matmul(x, x, transpose_b=True) * 0.25)(x)
        print(len(tf_tvm_ops.rewrite.report()))
    """)
    assert printed == "0"


def test_reporting_to_standard_error() -> None:
    code = CODE.format(load="tf_tvm_ops.load()")
    lines = own_messages(run_with_tensorflow(code, TF_TVM_OPS_REWRITE="report").stderr)
    assert len(lines) == 2
    assert "1 products, 1 rewritten" in lines[0]
    assert lines[1].endswith("BatchMatMulV2 [2,4,5,16] [2,4,5,16]: TvmBatchMatMul with scale")
    lines = own_messages(run_with_tensorflow(code, TF_TVM_OPS_LOG="info").stderr)
    assert any("graphs are rewritten when they are set up" in line for line in lines)
    assert any("1 products, 1 rewritten" in line for line in lines)
    assert own_messages(run_with_tensorflow(code).stderr) == []
    (warning,) = own_messages(run_with_tensorflow(code, TF_TVM_OPS_REWRITE="yes").stderr)
    assert "expected one of on, off, report" in warning


def test_without_packs_nothing_changes_but_who_computes(tmp_path: Path) -> None:
    printed = output_with_tensorflow(
        """
        import numpy as np, tensorflow as tf, tf_tvm_ops
        tf_tvm_ops.load()
        x = tf.constant(np.random.default_rng(0).standard_normal([2, 4, 5, 16], np.float32))
        f = lambda x: tf.nn.softmax(tf.matmul(x, x, transpose_b=True) * 0.25) @ x
        with tf_tvm_ops.rewrite.disabled():
            want = tf.function(f)(x)
        got = tf.function(f)(x)
        print(float(tf.reduce_max(abs(got - want))), len(tf_tvm_ops.rewrite.report()))
    """,
        TF_TVM_OPS_CPU_TARGET="none",
    )
    difference, products = printed.split()
    assert float(difference) < 1e-5
    assert products == "2"


def test_the_cost_is_counted() -> None:
    before = rewrite.cost()
    tf.function(masked_scores)(Q, K, MASK)
    after = rewrite.cost()
    assert after.graphs > before.graphs
    assert after.nodes > before.nodes
    assert after.seconds > before.seconds


def test_reasons_are_sentences() -> None:
    reasons = rewrite.reasons()
    assert {"projection", "stock", "xla", "consumers", "cast"} <= set(reasons)
    assert all(sentence.endswith(".") for sentence in reasons.values())
