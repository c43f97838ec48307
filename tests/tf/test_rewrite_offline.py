"""Rewriting of graphs and SavedModels that are stored, and back."""

from __future__ import annotations

import shutil
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tf_tvm_ops import rewrite, rewrite_graph_def, rewrite_saved_model

from .processes import output_with_tensorflow, run_with_tensorflow
from .rewriting import FAMILY, assert_same, executed_ops, normal

SWAP = [0, 2, 1, 3]
OPEN = tf.TensorSpec([None, None, 4, 16])


def attention(q: Any, k: Any, v: Any, m: Any) -> Any:
    """Everything that can be fused, of length-first operands."""
    q, k, v = (tf.transpose(x, SWAP) for x in (q * 0.25, k, v))
    weights = tf.nn.softmax(tf.matmul(q, k, transpose_b=True) / 2.0 - m)
    return tf.transpose(tf.matmul(weights, v), SWAP)


Q, K, V = (normal(2, 7, 4, 16, seed=i) for i in range(3))
MASK = normal(2, 1, 1, 7)


class Model(tf.Module):
    """Two signatures, variables, an asset, a loop, a branch and a nested function."""

    def __init__(self, vocabulary: str) -> None:
        super().__init__()
        self.weight = tf.Variable(normal(16, 16, seed=9))
        self.table = tf.lookup.StaticVocabularyTable(
            tf.lookup.TextFileInitializer(
                vocabulary,
                tf.string,
                tf.lookup.TextFileIndex.WHOLE_LINE,
                tf.int64,
                tf.lookup.TextFileIndex.LINE_NUMBER,
            ),
            1,
        )
        self.inner = tf.function(attention)

    @tf.function(input_signature=[OPEN, OPEN, OPEN, tf.TensorSpec([None, 1, 1, None])])
    def attend(self, q: Any, k: Any, v: Any, m: Any) -> Any:
        def body(i: Any, x: Any) -> Any:
            return i + 1, tf.ensure_shape(self.inner(x, k, v, m), OPEN.shape)

        x = tf.while_loop(lambda i, x: i < 2, body, (0, tf.matmul(q, self.weight)))[1]
        return {"x": tf.cond(tf.reduce_sum(x) > 0, lambda: self.inner(x, k, v, m), lambda: x)}

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string)])
    def look_up(self, words: Any) -> Any:
        return {"ids": self.table.lookup(words)}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    vocabulary = folder / "words.txt"
    vocabulary.write_text("one\ntwo\n")
    module = Model(str(vocabulary))
    signatures = {"attend": module.attend, "look_up": module.look_up}
    tf.saved_model.save(module, str(folder / "saved"), signatures=signatures)
    return folder / "saved"


@pytest.fixture
def stock(model: Path) -> Any:
    with rewrite.disabled():
        return tf.saved_model.load(str(model)).signatures["attend"](q=Q, k=K, v=V, m=MASK)["x"]


def ops_of(path: Path) -> Counter[str]:
    """All ops of a SavedModel, those of its functions too."""
    from tensorflow.core.protobuf import saved_model_pb2

    saved = saved_model_pb2.SavedModel.FromString((path / "saved_model.pb").read_bytes())
    (meta,) = saved.meta_graphs
    ops = Counter(node.op for node in meta.graph_def.node)
    for function in meta.graph_def.library.function:
        ops.update(node.op for node in function.node_def)
    return ops


def test_a_saved_model_and_back(model: Path, stock: Any, tmp_path: Path) -> None:
    report = rewrite_saved_model(model, tmp_path / "fused")
    # A function is stored once for each place that calls it.
    fused = [outcome for outcome in report if outcome.rewritten]
    assert {outcome.op for outcome in fused} == {"TvmBatchMatMulAdd", "TvmBatchMatMulTranspose"}
    assert set(report.left_alone()) == {"projection"}
    for outcome in fused:
        assert outcome.reason == ""
    ops = ops_of(tmp_path / "fused")
    assert ops["TvmBatchMatMulAdd"] == ops["TvmBatchMatMulTranspose"] > 0
    assert ops["RealDiv"] == ops["Transpose"] == 0
    assert ops["Softmax"] == ops_of(model)["Softmax"]
    assert ops["BatchMatMulV2"] == report.left_alone()["projection"]

    loaded = tf.saved_model.load(str(tmp_path / "fused"))
    with rewrite.disabled(), executed_ops() as executed:
        got = loaded.signatures["attend"](q=Q, k=K, v=V, m=MASK)["x"]
    assert_same(got, stock)
    assert executed["TvmBatchMatMulAdd"] > 0
    words = loaded.signatures["look_up"](words=tf.constant(["two", "three"]))["ids"]
    assert words.numpy().tolist() == [1, 2]
    assert_same(loaded.weight, normal(16, 16, seed=9))

    back = rewrite_saved_model(tmp_path / "fused", tmp_path / "back", revert=True)
    assert len(back.rewritten) == len(back) == len(fused)
    ops = ops_of(tmp_path / "back")
    assert not any(ops[op] for op in FAMILY)
    assert ops["BatchMatMulV2"] == ops_of(model)["BatchMatMulV2"]
    with rewrite.disabled():
        reverted = tf.saved_model.load(str(tmp_path / "back"))
        assert_same(reverted.signatures["attend"](q=Q, k=K, v=V, m=MASK)["x"], stock)


def test_a_rewritten_model_is_loaded_by_another_process(model: Path, tmp_path: Path) -> None:
    rewrite_saved_model(model, tmp_path / "fused")
    code = """
        import tensorflow as tf
        {load}
        model = tf.saved_model.load({path!r})
        x = tf.ones([2, 7, 4, 16])
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = model.signatures["attend"](q=x, k=x, v=x, m=tf.zeros([2, 1, 1, 7]))["x"]
        print(tuple(tape.gradient(y, x).shape))
    """
    load = "import tf_tvm_ops; tf_tvm_ops.load()"
    path = str(tmp_path / "fused")
    assert output_with_tensorflow(code.format(load=load, path=path)) == "(2, 7, 4, 16)"
    rewrite_saved_model(tmp_path / "fused", tmp_path / "back", revert=True)
    assert (
        output_with_tensorflow(code.format(load="", path=str(tmp_path / "back"))) == "(2, 7, 4, 16)"
    )


def test_rewriting_twice_is_rewriting_once(model: Path, tmp_path: Path) -> None:
    rewrite_saved_model(model, tmp_path / "once")
    report = rewrite_saved_model(tmp_path / "once", tmp_path / "twice")
    assert len(report.rewritten) == 0
    assert ops_of(tmp_path / "once") == ops_of(tmp_path / "twice")
    again = rewrite_saved_model(model, tmp_path / "again")
    assert len(again.rewritten) > 0
    files = [(tmp_path / name / "saved_model.pb").read_bytes() for name in ("once", "again")]
    assert files[0] == files[1]


def test_a_model_of_version_1(tmp_path: Path) -> None:
    path = str(tmp_path / "model")
    q, k, m = Q.numpy(), K.numpy(), MASK.numpy()
    with tf.Graph().as_default(), tf.compat.v1.Session() as session, rewrite.disabled():
        inputs = {n: tf.compat.v1.placeholder(tf.float32, None, n) for n in ("q", "k", "m")}
        weight = tf.compat.v1.get_variable("w", initializer=2.0)
        x, y = (tf.ensure_shape(inputs[n], [None] * 4) for n in ("q", "k"))
        product = tf.matmul(x * weight, y, transpose_b=True, name="product")
        total = tf.add(product * 0.5, inputs["m"], name="total")
        session.run(tf.compat.v1.global_variables_initializer())
        tf.compat.v1.saved_model.simple_save(session, path, inputs, {"total": total})
        feeds = {"q:0": q, "k:0": k, "m:0": m[..., 0]}
        feeds["m:0"] = 1.0
        want = session.run(["total:0", "product:0"], feeds)
    report = rewrite_saved_model(path, tmp_path / "fused")
    assert report.outcomes[0].parts == ("scale", "addend")
    with tf.Graph().as_default(), tf.compat.v1.Session() as session, rewrite.disabled():
        tf.compat.v1.saved_model.load(session, ["serve"], str(tmp_path / "fused"))
        # What was fused may be fetched and is still there.
        got = session.run(["total:0", "product:0"], feeds)
    assert_same(got, want)


def test_a_graph_with_outputs_loses_what_was_fused() -> None:
    concrete = tf.function(attention).get_concrete_function(Q, K, V, MASK)
    graph = concrete.graph.as_graph_def()
    kept, _ = rewrite_graph_def(graph)
    output = concrete.outputs[0].op.name
    fused, _ = rewrite_graph_def(graph, [output])
    assert {n.name for n in graph.node} <= {n.name for n in kept.node}
    assert "BatchMatMulV2" in {n.op for n in kept.node}
    assert "BatchMatMulV2" not in {n.op for n in fused.node}
    product = next(n.name for n in graph.node if n.op == "BatchMatMulV2")
    _, report = rewrite_graph_def(graph, [output, f"{product}:0"])
    assert report.outcomes[0].reason == "fetched"
    assert rewrite_graph_def(graph, output)[0] == fused
    feeds = {t.name: x.numpy() for t, x in zip(concrete.inputs, (Q, K, V, MASK))}
    want = concrete(Q, K, V, MASK)
    for stored in (kept, fused, rewrite_graph_def(fused, revert=True)[0]):
        with tf.Graph().as_default() as imported, rewrite.disabled():
            tf.import_graph_def(stored, name="")
            with tf.compat.v1.Session(graph=imported) as session:
                assert_same(session.run(f"{output}:0", feeds), want)


def test_a_graph_whose_outputs_are_unknown_is_not_rewritten_twice() -> None:
    graph = tf.function(attention).get_concrete_function(Q, K, V, MASK).graph.as_graph_def()
    once, _ = rewrite_graph_def(graph)
    twice, report = rewrite_graph_def(once)
    assert len(report) == 0
    assert twice == once


def test_a_fed_constant_is_no_constant() -> None:
    with tf.Graph().as_default() as graph:
        q = tf.compat.v1.placeholder(tf.float32, [2, 4, 5, 16], "q")
        tf.multiply(tf.matmul(q, q, transpose_b=True), tf.constant(0.25, name="c"), name="y")
    stored = graph.as_graph_def()
    _, report = rewrite_graph_def(stored, ["y"])
    assert report.outcomes[0].parts == ("scale",)
    _, report = rewrite_graph_def(stored, ["y"], inputs=["c:0"])
    assert report.outcomes[0].reason == "not_constant"
    _, report = rewrite_graph_def(stored, ["y"], inputs=["MatMul"])
    assert report.outcomes[0].reason == "fetched"


@tf.RegisterGradient("ZeroForTest")
def _zero(op: Any, gradient: Any) -> Any:
    zeros = [tf.zeros_like(x) for x in op.inputs]
    return [None if x.dtype == tf.int32 else x for x in zeros]


@pytest.mark.parametrize("override", ["BatchMatMulV2", "Mul", "Transpose"])
def test_a_gradient_of_its_own_is_kept(override: str) -> None:
    with tf.Graph().as_default() as graph:
        x = tf.compat.v1.placeholder(tf.float32, [2, 4, 5, 16], "x")
        with graph.gradient_override_map({override: "ZeroForTest"}):
            heads = tf.transpose(x, SWAP)
            tf.multiply(tf.matmul(heads, heads, transpose_b=True), 0.5, name="y")
    fused, report = rewrite_graph_def(graph.as_graph_def(), ["y"])
    assert override == "Transpose" or "gradient" in {outcome.reason for outcome in report}
    gradients = []
    for stored in (graph.as_graph_def(), fused):
        with tf.Graph().as_default() as imported, rewrite.disabled():
            x, y = tf.import_graph_def(stored, name="", return_elements=["x:0", "y:0"])
            (gradient,) = tf.gradients(y, x)
            with tf.compat.v1.Session(graph=imported) as session:
                gradients.append(session.run(gradient, {x: np.ones([2, 4, 5, 16])}))
    assert_same(gradients[1], gradients[0])


def test_what_others_are_placed_with_stays() -> None:
    with tf.Graph().as_default() as graph:
        x = tf.compat.v1.placeholder(tf.float32, [2, 4, 5, 16], "x")
        product = tf.matmul(x, x, transpose_b=True, name="product")
        with tf.compat.v1.colocate_with(product):
            other = tf.nn.relu(x)
        tf.add(tf.reduce_sum(product * 0.5), tf.reduce_sum(other), name="y")
    fused, report = rewrite_graph_def(graph.as_graph_def(), ["y"])
    assert report.outcomes[0].reason == "fetched"
    with tf.Graph().as_default(), rewrite.disabled(), tf.compat.v1.Session() as session:
        tf.import_graph_def(fused, name="")
        session.run("y:0", {"x:0": np.ones([2, 4, 5, 16])})


def test_functions_return_what_was_fused_and_keep_what_runs() -> None:
    log = tf.Variable(0)

    @tf.function
    def inner(x: Any) -> Any:
        log.assign_add(1)
        return tf.matmul(x, x, transpose_b=True) * 0.5

    concrete = tf.function(lambda x: inner(x)).get_concrete_function(Q)
    stored = concrete.graph.as_graph_def()
    # As TensorFlow writes them; and with the number of the first output left out.
    for short in (False, True):
        for function in stored.library.function:
            for key, value in function.ret.items():
                function.ret[key] = value.removesuffix(":0") if short else value
        fused, report = rewrite_graph_def(stored)
        assert [outcome.op for outcome in report] == ["TvmBatchMatMul"]
        with tf.Graph().as_default(), rewrite.disabled():
            tf.import_graph_def(fused, name="")
        functions = {f.signature.name: f for f in fused.library.function}
        before = {f.signature.name: f for f in stored.library.function}
        name = report.outcomes[0].graph
        assert functions[name].control_ret == before[name].control_ret
        assert len(functions[name].control_ret) == 1


def test_functions_that_xla_compiles_are_left_alone() -> None:
    inner = tf.function(lambda x: tf.matmul(x, x, transpose_b=True) * 0.5, jit_compile=True)
    concrete = tf.function(lambda x: inner(x)).get_concrete_function(Q)
    _, report = rewrite_graph_def(concrete.graph.as_graph_def())
    assert report.left_alone() == {"xla": 1}


def test_ops_of_the_model_itself_are_reverted() -> None:
    from tf_tvm_ops import batch_matmul, batch_matmul_add, batch_matmul_transpose

    def function(q: Any, k: Any, v: Any, m: Any) -> Any:
        layout = {"a_length_first": True, "b_length_first": True}
        scores = batch_matmul_add(q, k, m, adj_y=True, scale=1 / 3, **layout)
        x = batch_matmul_transpose(tf.nn.softmax(scores), v, b_length_first=True)
        return batch_matmul(x, x, adj_x=True)

    for dtype in ("float32", "float64", "float16"):
        inputs = [tf.cast(x, dtype) for x in (Q, K, V, MASK)]
        concrete = tf.function(function).get_concrete_function(*inputs)
        graph = concrete.graph.as_graph_def()
        stock, report = rewrite_graph_def(graph, revert=True)
        assert len(report.rewritten) == 3
        assert not {n.op for n in stock.node} & set(FAMILY)
        feeds = {t.name: x.numpy() for t, x in zip(concrete.inputs, inputs)}
        with tf.Graph().as_default() as imported, rewrite.disabled():
            tf.import_graph_def(stock, name="")
            with tf.compat.v1.Session(graph=imported) as session:
                got = session.run(concrete.outputs[0].name, feeds)
        assert_same(got, concrete(*inputs))


def test_an_op_whose_rank_is_unknown_is_not_reverted() -> None:
    from tf_tvm_ops import batch_matmul

    @tf.function(input_signature=[tf.TensorSpec(None)] * 2)
    def function(x: Any, y: Any) -> Any:
        return batch_matmul(x, y, a_length_first=True)

    graph = function.get_concrete_function().graph.as_graph_def()
    same, report = rewrite_graph_def(graph, revert=True)
    assert same == graph
    assert report.left_alone() == {"rank": 1}


def test_bad_arguments(model: Path, tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="expected a GraphDef, got str"):
        rewrite_graph_def("graph")
    graph = tf.compat.v1.GraphDef()
    graph.node.add(name="x", op="NoSuchOp")
    graph.node.add(name="y", op="BatchMatMulV2", input=["x", "x"])
    with pytest.raises(ValueError, match="NoSuchOp"):
        rewrite_graph_def(graph)
    with pytest.raises(FileNotFoundError, match=r"has no saved_model\.pb"):
        rewrite_saved_model(tmp_path, tmp_path / "new")
    (tmp_path / "there").mkdir()
    with pytest.raises(FileExistsError, match="there exists"):
        rewrite_saved_model(model, tmp_path / "there")
    broken = tmp_path / "broken"
    shutil.copytree(model, broken)
    (broken / "saved_model.pb").write_bytes(b"no model")
    with pytest.raises(ValueError, match=r"saved_model\.pb"):
        rewrite_saved_model(broken, tmp_path / "new")
    with pytest.raises(ValueError, match="lies inside"):
        rewrite_saved_model(model, model / "new")
    assert not (model / "new").exists()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["broken", "there"]
    good = tf.function(attention).get_concrete_function(Q, K, V, MASK).graph.as_graph_def()
    with pytest.raises(ValueError, match="no node 'softmax'"):
        rewrite_graph_def(good, ["softmax:0"])
    with pytest.raises(TypeError, match="outputs: expected names of nodes, got int"):
        rewrite_graph_def(good, [1])  # type: ignore[list-item]


def command(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    words = ["rewrite", *map(str, arguments)]
    return run_with_tensorflow(f"from tf_tvm_ops.tools.cli import main\nmain({words!r})")


def test_the_command(model: Path, tmp_path: Path) -> None:
    done = command(model, tmp_path / "fused", "--report")
    assert done.returncode == 0, done.stderr
    assert "TvmBatchMatMulAdd" in done.stdout
    assert "projection" in done.stdout
    done = command(tmp_path / "fused", tmp_path / "back", "--revert")
    assert done.returncode == 0
    assert done.stdout.strip().endswith("reverted")
    assert not any(ops_of(tmp_path / "back")[op] for op in FAMILY)
    done = command(model, tmp_path / "back")
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("Error: ")
    assert "Traceback" not in done.stderr
