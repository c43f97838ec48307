"""Graphs with products on GPUs are rewritten where a pack has kernels for them."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

Run = Callable[..., str]

_FUNCTIONS = """
tf_tvm_ops.load()

def attention(a, b, mask):
    with tf.device("/GPU:0"):
        return tf.matmul(a, b, transpose_b=True) * 0.125 + mask

a, b, mask = random(2, 3, 17, 64), random(2, 3, 17, 64), random(2, 1, 1, 17)

def said(function, *inputs, signature=None):
    # What the graph gave, what became of its products, and what ran.
    tf_tvm_ops.rewrite.clear_report()
    launches = count("fake_launches") if _driver else 0
    got = tf.function(function, input_signature=signature, autograph=False)(*inputs)
    outcomes = {(o.op, o.reason, o.detail) for o in tf_tvm_ops.rewrite.report().outcomes}
    launched = count("fake_launches") - launches if _driver else 0
    return got, [sorted(outcomes), launched, stock_ran()]
"""


def outcomes_of(on_gpus: Run, code: str, **environment: str) -> Any:
    return json.loads(on_gpus(_FUNCTIONS + code, **environment))


@pytest.mark.parametrize("shapes", ["known", "unknown"])
def test_products_on_gpus_are_fused(on_gpus: Run, shapes: str) -> None:
    signature = "None" if shapes == "known" else "[tf.TensorSpec(None)] * 3"
    found = outcomes_of(
        on_gpus,
        f"""
got, found = said(attention, a, b, mask, signature={signature})
assert got.device.endswith("GPU:0"), got.device
check_matmul(got, a, b.swapaxes(-1, -2), scale=0.125, addend=mask)
print(json.dumps([[o[:2] for o in found[0]], *found[1:]]))
""",
    )
    assert found == [[["TvmBatchMatMulAdd", ""]], 1, []]


def test_products_that_stock_serves_are_left_alone(on_gpus: Run) -> None:
    """Known beforehand where shapes are."""
    found = outcomes_of(
        on_gpus,
        """
def product(a, b):
    with tf.device("/GPU:0"):
        return tf.matmul(a, b)

x, y = random(2, 90, 80), random(2, 80, 70)
got, found = said(product, x, y)
check_matmul(got, x, y)
print(json.dumps(found))
""",
    )
    assert found == [[["", "stock", "no_kernel"]], 0, ["BatchMatMulV2"]]


def test_other_dtypes_are_left_alone(on_gpus: Run) -> None:
    """tensorflow#27671."""
    found = outcomes_of(
        on_gpus,
        """
def product(a, b):
    with tf.device("/GPU:0"):
        return tf.matmul(a, b)

x, y = np.arange(24).reshape(2, 3, 4), np.arange(40).reshape(2, 4, 5)
got, found = said(product, x.astype(np.complex64), y.astype(np.complex64))
np.testing.assert_array_equal(got, x @ y)
print(json.dumps(found))
""",
    )
    assert found == [[["", "dtype", "complex64"]], 0, ["BatchMatMulV2"]]


def test_gpus_that_no_pack_knows_are_left_alone(on_gpus: Run) -> None:
    found = outcomes_of(
        on_gpus,
        """
got, found = said(attention, a, b, mask, signature=[tf.TensorSpec(None)] * 3)
check_matmul(got, a, b.swapaxes(-1, -2), scale=0.125, addend=mask)
print(json.dumps(found))
""",
        capability="8.0",
    )
    outcomes, launches, stock = found
    assert outcomes == [["", "device", "GPU: no pack has kernels for it"]]
    assert launches == 0
    assert stock == ["BatchMatMulV2", "Mul", "AddV2"]


def test_products_on_the_cpu_are_fused_beside(on_gpus: Run) -> None:
    found = outcomes_of(
        on_gpus,
        """
def both(a, b, mask):
    with tf.device("/CPU:0"):
        on_cpu = tf.matmul(a, b, transpose_b=True) * 0.125 + mask
    return attention(a, b, mask), on_cpu

got, found = said(both, a, b, mask)
for each in got:
    check_matmul(each, a, b.swapaxes(-1, -2), scale=0.125, addend=mask)
print(json.dumps([[o[0] for o in found[0]], *found[1:]]))
""",
    )
    assert found == [["TvmBatchMatMulAdd"], 1, []]


def test_gradients_of_a_rewritten_graph(on_gpus: Run) -> None:
    found = outcomes_of(
        on_gpus,
        """
def gradients(device):
    def loss(a, b, mask):
        with tf.device(device), tf.GradientTape() as tape:
            tape.watch([a, b, mask])
            y = tf.matmul(a, b, transpose_b=True) * 0.125 + mask
            y = tf.reduce_sum(y * y)
        return tape.gradient(y, [a, b, mask])
    return said(loss, *map(tf.constant, (a, b, mask)))

on_gpu, found = gradients("/GPU:0")
on_cpu, _ = gradients("/CPU:0")
for got, want in zip(on_gpu, on_cpu):
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)
print(json.dumps([[o[0] for o in found[0]], found[1]]))
""",
        TF_TVM_OPS_FALLBACK="generic",
    )
    ops, launches = found
    assert ops == ["TvmBatchMatMul", "TvmBatchMatMulAdd"]
    assert launches == 3
