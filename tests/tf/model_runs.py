"""Running a model with and without the rewriter, from one trace, and summing up what it did."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import tensorflow as tf
import yaml

from tf_tvm_ops import rewrite
from tf_tvm_ops.kernels.targets import host_cpu_flags

from .model import SHAPES, Model, ModelCase
from .rewriting import FAMILY, executed_ops

EXPECTED = Path(__file__).with_name("models.yaml")
EXPECTED_FLOAT16 = EXPECTED.with_name("models_float16.yaml")

ONEDNN_TAKES_FLOAT16 = bool({"avx512_fp16", "amx_fp16", "avx_ne_convert"} & host_cpu_flags())
"""Whether this CPU computes in float16, so that oneDNN does: scale and addend are left to it."""

PRODUCTS = ("Einsum", "BatchMatMulV2", "FusedBatchMatMulV2")
# What may go when something is fused, or take its place.
FUSIBLE = (*PRODUCTS, *FAMILY, "Mul", "RealDiv", "Add", "AddV2", "AddN", "Sub", "Neg", "Transpose")


@dataclass(frozen=True)
class Mode:
    """A way to run a model.

    Attributes
    ----------
    name
        ``open``: inference, with a graph for every shape. ``static``: with one for known shapes.
        ``training``: a loss in training mode and its gradients, with known shapes.
    shapes
        How many of `SHAPES` it is run with.
    trace
        Gives the graph.
    """

    name: str
    shapes: int
    trace: Callable[[Model], Any] = field(repr=False)


def _with_known_shapes(model: Model, function: Callable[..., Any]) -> Any:
    return tf.function(function).get_concrete_function(model.inputs(SHAPES[0]))


MODES = {
    mode.name: mode
    for mode in (
        Mode("open", 2, lambda model: model.function().get_concrete_function()),
        Mode("static", 1, lambda model: _with_known_shapes(model, lambda x: model(x))),
        Mode("training", 1, lambda model: _with_known_shapes(model, model.gradients)),
    )
}


@dataclass(frozen=True)
class ModelRun:
    """What one way of running a model gave.

    Attributes
    ----------
    want, got
        Flattened outputs of stock and of the rewritten graph, for each set of inputs.
    outcomes
        What the rewriter says of the products.
    stock_ops, ops
        Those that ran, without the prefix of oneDNN's.
    """

    want: list[list[Any]] = field(repr=False)
    got: list[list[Any]] = field(repr=False)
    outcomes: tuple[rewrite.Outcome, ...]
    stock_ops: Counter[str]
    ops: Counter[str]

    def ran(self, ops: Mapping[str, int]) -> int:
        """How many products there are among ``ops``. TensorFlow removes those without a use."""
        return sum(ops[op] for op in (*PRODUCTS, *FAMILY))

    def summary(self) -> dict[str, Any]:
        """What ``models.yaml`` has of it."""
        change = Counter(self.ops)
        change.subtract(self.stock_ops)
        del change["Const"]  # of factors and permutations, and shared by TensorFlow as it likes
        outcomes = Counter(map(describe, self.outcomes))
        return {
            "products": dict(sorted(outcomes.items())),
            "ran": self.ran(self.stock_ops),
            "ops": {op: change[op] for op in sorted(change) if change[op]},
        }


def describe(outcome: rewrite.Outcome) -> str:
    """An outcome without the names of nodes."""
    if not outcome.rewritten:
        return f"left alone by {outcome.reason}"
    fused = f" with {', '.join(outcome.parts)}" if outcome.parts else ""
    return f"{outcome.op}{fused}" + (f"; ended by {outcome.reason}" if outcome.reason else "")


def build(case: ModelCase) -> Model:
    """The model; nothing of what making it runs is rewritten."""
    with rewrite.disabled():
        return case.build()


def run(case: ModelCase, model: Model, mode: Mode) -> ModelRun:
    """Run a model both ways. Dropout drops the same in both: they have one trace, and one state."""
    # Whether stock's bfloat16 is expected to be faster depends on the CPU.
    fallback = {"TF_TVM_OPS_FALLBACK": "generic"} if case.precision == "bfloat16" else {}
    with mock.patch.dict(os.environ, fallback):
        return _run(model, mode)


def _run(model: Model, mode: Mode) -> ModelRun:
    concrete = mode.trace(model)
    inputs = [model.inputs(shape) for shape in SHAPES[: mode.shapes]]
    state = [variable.numpy() for variable in model.state]

    def outputs() -> tuple[list[list[Any]], Counter[str]]:
        # Another function around the same trace is another graph to TensorFlow.
        signature = [model.signature()] if mode.shapes > 1 else None
        function = tf.function(lambda x: concrete(x), input_signature=signature)
        results, first_ops = [], None
        for x in inputs:
            for variable, value in zip(model.state, state):
                variable.assign(value)
            with executed_ops() as ops:
                results.append(tf.nest.flatten(function(x), expand_composites=True))
            # TensorFlow tells the graph when it sets it up.
            first_ops = first_ops or count(ops.elements())
        return results, first_ops or Counter()

    with rewrite.disabled():
        want, stock_ops = outputs()
    rewrite.clear_report()
    got, ops = outputs()
    outcomes = rewrite.report().outcomes
    rewrite.clear_report()
    return ModelRun(want, got, outcomes, stock_ops, ops)


def count(ops: Iterable[str]) -> Counter[str]:
    """How many of each there are. oneDNN's go by the name of what they compute."""
    return Counter(op.removeprefix("_Mkl") for op in ops)


def expectation(case: ModelCase) -> Path:
    """The file that says what becomes of a model on this CPU."""
    special = ONEDNN_TAKES_FLOAT16 and case.precision == "float16"
    return EXPECTED_FLOAT16 if special else EXPECTED


def expected(path: Path = EXPECTED) -> dict[str, Any]:
    """What a file says, by model and mode."""
    found: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    return found
