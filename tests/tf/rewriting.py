"""Running functions with and without the rewriter, and looking at what it did."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.eager import context

from tf_tvm_ops import rewrite

FAMILY = ("TvmBatchMatMul", "TvmBatchMatMulAdd", "TvmBatchMatMulTranspose")
STOCK = ("BatchMatMul", "BatchMatMulV2", "BatchMatMulV3", "Einsum", "_MklBatchMatMulV2")

# Largest difference, relative to the largest element of stock's answer: float32 and float64 are
# summed in another order; 16-bit types are rounded once where stock rounds after each op.
TOLERANCE = {"float32": 2e-6, "float64": 1e-14, "float16": 4e-3, "bfloat16": 3e-2}


@contextmanager
def executed_ops() -> Iterator[Counter[str]]:
    """Counts the ops of the graphs that run inside the block, after all optimisations."""
    ops: Counter[str] = Counter()
    context.enable_run_metadata()
    context.export_run_metadata()  # once enabled, it also holds what ran while it was disabled
    try:
        yield ops
    finally:
        metadata = context.export_run_metadata()
        context.disable_run_metadata()
        for graph in metadata.partition_graphs:
            ops.update(node.op for node in graph.node)


def assert_same(got: Any, want: Any) -> None:
    """Assert that flattened outputs are those of stock, as near as their dtypes allow."""
    got, want = tf.nest.flatten(got), tf.nest.flatten(want)
    assert len(got) == len(want)
    for g, w in zip(got, want):
        x, y = np.asarray(g), np.asarray(w)
        assert x.dtype == y.dtype
        assert x.shape == y.shape
        if y.dtype.name not in TOLERANCE:
            np.testing.assert_array_equal(x, y)
            continue
        tolerance = TOLERANCE[y.dtype.name]
        x, y = x.astype(np.float64), y.astype(np.float64)
        finite = np.isfinite(y)
        np.testing.assert_array_equal(x[~finite], y[~finite])
        largest = np.abs(y[finite]).max(initial=1.0)
        np.testing.assert_array_less(np.abs(x[finite] - y[finite]), largest * tolerance)


@dataclass(frozen=True)
class Rewritten:
    """A function that gave the same answers with and without the rewriter.

    Attributes
    ----------
    outcomes
        What the rewriter says of it.
    ops
        The ops that ran.
    outputs
        What it gave.
    """

    outcomes: tuple[rewrite.Outcome, ...]
    ops: Counter[str]
    outputs: Any = field(repr=False)

    def only(self) -> rewrite.Outcome:
        """What became of its only product."""
        (outcome,) = self.outcomes
        return outcome

    def family(self) -> list[str]:
        """The ops of the family that ran, in alphabetical order."""
        return sorted(op for op in self.ops.elements() if op in FAMILY)


def run(
    function: Callable[..., Any], *inputs: Any, specs: Sequence[tf.TensorSpec] | None = None
) -> Rewritten:
    """Run a function both ways and assert that the answers are the same."""
    with rewrite.disabled():
        want = tf.function(function, input_signature=specs)(*inputs)
    rewrite.clear_report()
    with executed_ops() as ops:
        got = tf.function(function, input_signature=specs)(*inputs)
    assert_same(got, want)
    outcomes = rewrite.report().outcomes
    rewrite.clear_report()
    names = sorted(outcome.op for outcome in outcomes if outcome.rewritten)
    result = Rewritten(outcomes, ops, got)
    assert result.family() == names, "the report is not what ran"
    return result


def normal(*shape: int, dtype: str = "float32", seed: int = 0) -> tf.Tensor:
    """Normally distributed numbers."""
    rng = np.random.default_rng([seed, *shape])
    return tf.cast(tf.constant(rng.standard_normal(shape)), dtype)


# Operands of attention: [batch, heads, length, depth] and, as a dense layer leaves them, [batch,
# length, heads, depth]; probabilities; a mask.
Q, K, V = normal(2, 4, 5, 16), normal(2, 4, 7, 16, seed=1), normal(2, 4, 7, 16, seed=2)
QL, KL, VL = (tf.transpose(x, [0, 2, 1, 3]) for x in (Q, K, V))
P = normal(2, 4, 5, 7, seed=3)
MASK = normal(2, 1, 1, 7, seed=4)
SWAP = [0, 2, 1, 3]  # length and heads


def scores(q: Any, k: Any) -> Any:
    """Queries times keys, which many tests begin with."""
    return tf.matmul(q, k, transpose_b=True)
