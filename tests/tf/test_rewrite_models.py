"""Models that others wrote, rewritten: every product accounted for, nothing else changed.

``models.yaml`` has what becomes of each model, exactly, so that a fusion that is lost anywhere is
seen here. After a change that is meant: ``python -m tests.tf.models_table --run``.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tf_tvm_ops import rewrite

from . import model_runs, models, models_table
from .model import SHAPES, Model, ModelCase
from .model_runs import FUSIBLE, MODES, ModelRun
from .rewriting import FAMILY, TOLERANCE, assert_same

CASES = {case.name: case for case in models.MODELS}
EXPECTED = {
    case.name: model_runs.expected(model_runs.expectation(case))[case.name]
    for case in models.MODELS
}
pytestmark = pytest.mark.filterwarnings("ignore:Layer .* does not support masking")
SERVED = ("hub-bert", "hub-t5", "official-transformer", "huggingface-bert")


@pytest.fixture(scope="module", params=CASES)
def case(request: pytest.FixtureRequest) -> ModelCase:
    """Each model; all tests of one run before it is thrown away."""
    return CASES[request.param]


@pytest.fixture(scope="module")
def model(case: ModelCase) -> Model:
    return model_runs.build(case)


def assert_accounted_for(name: str, mode: str, result: ModelRun) -> None:
    """Assert that the outcomes and ops are those of ``models.yaml``, and make sense at all."""
    assert not any(result.stock_ops[op] for op in FAMILY)
    assert result.ran(result.ops) == result.ran(result.stock_ops) <= len(result.outcomes)
    for outcome in result.outcomes:
        assert outcome.rewritten or outcome.reason in rewrite.reasons()
        assert outcome.reason in ("", *rewrite.reasons())
    changed = set((result.ops - result.stock_ops) + (result.stock_ops - result.ops))
    assert changed <= {*FUSIBLE, "Const"}
    assert result.summary() == EXPECTED[name][mode]


def assert_same_gradients(got: Any, want: Any, tolerance: float, floor: float = 0) -> None:
    """Assert that gradients are stock's, as parts of their largest element.

    Those much smaller than the largest of all are compared as parts of that: the ones of biases of
    keys are zero but for rounding.
    """
    assert len(got) == len(want)
    floats = [np.asarray(w, np.float64) for w in want if w is not None and w.dtype.is_floating]
    largest = max(np.abs(w).max() for w in floats)
    for g, w in zip(got, want):
        assert (g is None) is (w is None)
        if w is None:
            continue
        x, y = np.asarray(g), np.asarray(w)
        if not w.dtype.is_floating:  # indices of what was looked up
            np.testing.assert_array_equal(x, y)
            continue
        allowed = tolerance * max(np.abs(y).max(), largest / 4)
        np.testing.assert_allclose(x, y, rtol=0, atol=max(allowed, floor))


def reordering(model: Model) -> float:
    """How far stock's only gradient is from itself when it sums in another order.

    Attention does not depend on the order of keys, nor the loss on that of queries.
    """
    concrete = MODES["training"].trace(model)
    inputs = model.inputs(SHAPES[0])
    rng = np.random.default_rng(0)

    def gradient() -> float:
        orders = {name: rng.permutation(x.shape[1]) for name, x in inputs.items()}
        return float(
            concrete({n: tf.gather(x, orders[n], axis=1) for n, x in inputs.items()})[1][0]
        )

    with rewrite.disabled():
        return float(np.ptp([gradient() for _ in range(10)]))


@pytest.mark.parametrize("mode", ["open", "static"])
def test_inference(case: ModelCase, model: Model, mode: str) -> None:
    result = model_runs.run(case, model, MODES[mode])
    for got, want in zip(result.got, result.want):
        assert_same(got, want)
    assert_accounted_for(case.name, mode, result)
    # All of attention is rewritten; what is left alone are the layers around it.
    left = Counter(outcome.reason for outcome in result.outcomes if not outcome.rewritten)
    by_onednn = left.pop("16_bit", 0)
    assert sum(outcome.rewritten for outcome in result.outcomes) == case.attention - by_onednn
    assert set(left) <= {"projection"}
    assert by_onednn == (model_runs.expectation(case) == model_runs.EXPECTED_FLOAT16)


def test_a_training_step(case: ModelCase, model: Model) -> None:
    if not case.trains:
        assert "training" not in EXPECTED[case.name]
        return
    result = model_runs.run(case, model, MODES["training"])
    (got,), (want,) = result.got, result.want
    assert_same(got[0], want[0])
    # Its gradient is one number, a sum of 168 that cancel out.
    floor = reordering(model) if case.name == "keras-attention" else 0
    assert_same_gradients(got[1:], want[1:], TOLERANCE[case.precision], floor)
    assert_accounted_for(case.name, "training", result)


def _serve(path: str, inputs: dict[str, Any]) -> tuple[list[Any], Any]:
    """What a session gives for a SavedModel, as servers run it, and the ops that ran."""
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        loaded = tf.compat.v1.saved_model.load(session, ["serve"], path)
        signature = loaded.signature_def["serving_default"]
        fetches = [signature.outputs[f"out{i}"].name for i in range(len(signature.outputs))]
        feed = {info.name: inputs[name].numpy() for name, info in signature.inputs.items()}
        options = tf.compat.v1.RunOptions(output_partition_graphs=True)
        metadata = tf.compat.v1.RunMetadata()
        values = session.run(fetches, feed, options=options, run_metadata=metadata)
    nodes = (node.op for graph in metadata.partition_graphs for node in graph.node)
    return [tf.constant(x) for x in values], model_runs.count(nodes)


@pytest.mark.parametrize("name", SERVED)
def test_a_saved_model_in_a_session(name: str, tmp_path: Path) -> None:
    path, case = str(tmp_path / "model"), CASES[name]
    model = model_runs.build(case)
    model.save(Path(path))
    assert b"Tvm" not in Path(path, "saved_model.pb").read_bytes()
    inputs = model.inputs(SHAPES[1])
    with rewrite.disabled():
        want, stock_ops = _serve(path, inputs)
    rewrite.clear_report()
    got, ops = _serve(path, inputs)
    outcomes = rewrite.report().rewritten
    assert_same(got, want)
    assert len(outcomes) == case.attention == sum(ops[op] for op in FAMILY)
    assert not any(stock_ops[op] for op in FAMILY)
    assert set((ops - stock_ops) + (stock_ops - ops)) <= {*FUSIBLE, "Const"}
    assert ops["Softmax"] == stock_ops["Softmax"] == case.attention / 2
    with rewrite.disabled():
        want = list(tf.saved_model.load(path).signatures["serving_default"](**inputs).values())
    rewrite.clear_report()
    loaded = tf.saved_model.load(path).signatures["serving_default"]
    assert_same(list(loaded(**inputs).values()), want)
    assert len(rewrite.report().rewritten) == case.attention


def test_the_table_is_of_these_models() -> None:
    assert list(EXPECTED) == list(CASES)


def test_the_page_has_these_tables() -> None:
    page = models_table.PAGE.read_text(encoding="utf-8")
    assert models_table.with_tables(page) == page, "run python -m tests.tf.models_table"


def test_the_page_has_every_reason() -> None:
    page = models_table.PAGE.read_text(encoding="utf-8")
    section = page.split("## When something is left alone")[1].split("\n## ")[0]
    for word, sentence in rewrite.reasons().items():
        assert f"| `{word}` | {sentence} |" in section
    assert section.count("| `") == len(rewrite.reasons())
