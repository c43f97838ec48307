"""The ops in what XLA compiles: the kernels of cc/xla."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import tf_tvm_ops
from tf_tvm_ops import batch_matmul, batch_matmul_add, batch_matmul_transpose

from .. import cases
from ..cases import (
    ADDEND_MISMATCHES,
    DTYPES,
    LAYOUT_MISMATCHES,
    MISMATCHES,
    Case,
    product,
    random_array,
)
from ..oracle import Array, check_matmul
from .family import check, check_transposed, compute, compute_transposed, has_transpose
from .processes import output_of, output_with_tensorflow

_GROUPS: dict[str, Callable[[], Iterable[Case]]] = {
    "attention": cases.attention,
    "ranks": cases.ranks,
    "broadcast": cases.broadcast,
    "many_batches": lambda: [cases.many_alternating_batches()],
    "empty": cases.empty,
    "layouts": cases.layouts,
    "addends": cases.addends,
    "without_terms": cases.without_terms,
}


def _arrays(case: Case) -> list[Array]:
    addend = case.random_addend()
    return [*case.operands(), *([] if addend is None else [addend])]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("group", _GROUPS)
def test_listed_cases(group: str, dtype: str) -> None:
    """All of a group in one function, since each function takes XLA a while."""
    tried = [replace(case, dtype=dtype) for case in dict.fromkeys(_GROUPS[group]())]
    arrays = [_arrays(case) for case in tried]

    @tf.function(jit_compile=True, autograph=False)
    def run(inputs: Any) -> Any:
        return [
            (compute(case, *x), *([compute_transposed(case, *x)] if has_transpose(case) else []))
            for case, x in zip(tried, inputs)
        ]

    for case, x, got in zip(tried, arrays, run(arrays)):
        check(case, got[0], *x)
        if has_transpose(case):
            check_transposed(case, got[1], *x)


@pytest.mark.parametrize(("dtype", "length"), [("float16", 4096), ("bfloat16", 1024)])
def test_16_bit_types_are_summed_in_float32(dtype: str, length: int) -> None:
    ones = tf.ones([1, 1, length], dtype)
    run = tf.function(batch_matmul, jit_compile=True, autograph=False)
    assert run(ones, ones, adj_y=True).numpy().tolist() == [[[length]]]


@pytest.mark.parametrize(("dtype", "many"), [("float16", 2048.0), ("bfloat16", 256.0)])
def test_16_bit_results_are_rounded_once(dtype: str, many: float) -> None:
    """``many + 1`` has no such number; it is lost unless the addend comes before rounding."""
    lhs = tf.constant([[many, 1.0]], dtype)
    run = tf.function(batch_matmul_add, jit_compile=True, autograph=False)
    got = run(lhs, tf.ones([2, 1], dtype), tf.constant([-many], dtype), scale=1.0)
    assert got.numpy().tolist() == [[1.0]]
    halves = run(lhs, tf.ones([2, 1], dtype), tf.constant([-many / 2], dtype), scale=0.5)
    assert halves.numpy().tolist() == [[0.5]]


def test_float64_is_exact_to_the_last_bits() -> None:
    lhs = np.array([[1.0, 2.0**-52]])
    run = tf.function(batch_matmul_add, jit_compile=True, autograph=False)
    third = np.float64(1) / 3
    got = run(lhs, np.ones((2, 1)), np.array([-third]), scale=float(third))
    want = third * (1 + 2.0**-52) - third
    assert abs(got.numpy()[0, 0] - want) <= 2.0**-54
    assert run(lhs, np.ones((2, 1)), np.array([-1.0])).numpy().tolist() == [[2.0**-52]]


def test_nan_and_infinities() -> None:
    case = product((2,), 4, 5, 33)
    lhs, rhs = case.operands()
    lhs[0, 1:] = np.nan
    rhs[1, 0, 0] = np.inf
    check(case, tf.function(batch_matmul, jit_compile=True, autograph=False)(lhs, rhs), lhs, rhs)


def _gradients(case: Case, seeds: Array, arrays: list[Array], transposed: bool) -> Any:
    def run(*inputs: tf.Tensor) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            output = (compute_transposed if transposed else compute)(case, *inputs)
        return tape.gradient(output, inputs, seeds)

    return run(*map(tf.constant, arrays)), tf.function(run, jit_compile=True, autograph=False)(
        *map(tf.constant, arrays)
    )


@pytest.mark.parametrize("dtype", DTYPES)
def test_gradients_of_a_product(dtype: str) -> None:
    case = product((2, 3), 5, 7, 4, scale=0.25, dtype=dtype)
    lhs, rhs = case.operands()
    seeds = random_array(case.output, dtype, 5)
    _, (of_lhs, of_rhs) = _gradients(case, seeds, [lhs, rhs], transposed=False)
    check_matmul(of_lhs, seeds, rhs, adj_y=True, scale=0.25)
    check_matmul(of_rhs, lhs, seeds, adj_x=True, scale=0.25)


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize(
    "case",
    [
        product((), 5, 7, 4, True, False, (2, 1), (1, 3), a_length_first=True, scale=0.5),
        product((2, 3), 5, 7, 4, False, True, rhs_batch=(3,), b_length_first=True),
        product((2, 3), 5, 7, 4, addend=(2, 1, 1, 7), scale=-2.0),
        Case((2, 5, 3), (2, 3, 1), addend=(6, 1, 1, 4)),
    ],
    ids=str,
)
def test_gradients_are_those_outside_xla(case: Case, transposed: bool) -> None:
    if transposed:
        case = replace(case, addend=None)
    arrays = _arrays(case)
    output = (compute_transposed if transposed else compute)(case, *arrays)
    seeds = random_array(tuple(output.shape), case.dtype, 5)
    outside, inside = _gradients(case, seeds, arrays, transposed)
    assert len(outside) == len(inside) == len(arrays)
    for array, want, got in zip(arrays, outside, inside):
        assert got.shape == array.shape
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


def test_batches_that_are_unknown_until_called() -> None:
    """One function, traced once, compiled for each shape that it is called with."""
    run = tf.function(
        lambda a, b, c: (
            batch_matmul(a, b, adj_y=True, scale=0.5),
            batch_matmul_add(a, b, c, adj_y=True),
            batch_matmul_transpose(a, b, adj_y=True),
        ),
        jit_compile=True,
        autograph=False,
        input_signature=[
            tf.TensorSpec([None, None, 3, 4]),
            tf.TensorSpec([None, 1, 5, 4]),
            tf.TensorSpec(None),
        ],
    )
    for batch, heads, addend in ((2, 3, (3, 5)), (1, 1, (4, 2, 1, 5)), (0, 2, ()), (6, 2, (1,))):
        case = product((), 3, 5, 4, False, True, (batch, heads), (batch, 1), addend=addend)
        lhs, rhs, c = _arrays(case)
        scaled, added, transposed = run(lhs, rhs, c)
        check(replace(case, scale=0.5), scaled, lhs, rhs)
        check(case, added, lhs, rhs, c)
        check_transposed(case, transposed, lhs, rhs)
    assert run.experimental_get_tracing_count() == 1


def test_extents_that_xla_itself_does_not_know() -> None:
    """What a mask keeps has no static extent even while XLA compiles."""
    mask = np.array([True, False, True, True])
    lhs, rhs = product((4,), 5, 6, 3).operands()

    def run(lhs: tf.Tensor, rhs: tf.Tensor) -> Any:
        a, b = tf.boolean_mask(lhs, mask_), tf.boolean_mask(rhs, mask_)
        rows = tf.boolean_mask(lhs, mask_extended, axis=1)
        return (
            batch_matmul(a, b),
            batch_matmul_add(a, rhs[0], tf.ones([6])),
            batch_matmul_transpose(a[:, None], rhs[0]),
            batch_matmul(rows, rhs, scale=2.0),
            batch_matmul_add(a, rhs[0], enlarging),
        )

    enlarging = random_array((2, 1, 1, 6), "float32", 7)
    mask_ = tf.Variable(mask)
    mask_extended = tf.Variable(np.append(mask, True))
    outputs = tf.function(run, jit_compile=True, autograph=False)(lhs, rhs)
    batches, added, transposed, rows, enlarged = (x.numpy() for x in outputs)
    check_matmul(batches, lhs[mask], rhs[mask])
    check_matmul(added, lhs[mask], rhs[0], addend=np.ones(6, np.float32))
    check_matmul(np.swapaxes(transposed, 1, 2), lhs[mask][:, None], rhs[0])
    check_matmul(rows, lhs[:, np.append(mask, True)], rhs, scale=2.0)
    check_matmul(enlarged, lhs[mask], rhs[0], addend=enlarging)


@pytest.mark.parametrize("case", [*MISMATCHES, *LAYOUT_MISMATCHES, *ADDEND_MISMATCHES], ids=str)
def test_mismatches(case: Case) -> None:
    """An error that names the shapes, as outside XLA."""
    arrays = _arrays(case)
    unknown = tf.TensorSpec(None, case.dtype)
    run = tf.function(
        lambda *x: compute(case, *x),
        jit_compile=True,
        autograph=False,
        input_signature=[unknown] * len(arrays),
    )
    with pytest.raises(tf.errors.InvalidArgumentError) as error:
        run(*arrays)
    with pytest.raises(tf.errors.InvalidArgumentError) as outside:
        compute(case, *arrays)
    for array in arrays:
        shape = str(list(array.shape)).replace(" ", "")
        assert shape in outside.value.message.replace(" ", "")
        assert shape in error.value.message.replace(" ", "")


def test_a_mismatch_of_known_shapes_is_found_when_traced() -> None:
    run = tf.function(batch_matmul, jit_compile=True, autograph=False)
    with pytest.raises(ValueError, match=r"\[2,1,4\], \[2,6,1\]"):
        run(tf.ones([2, 1, 4]), tf.ones([2, 6, 1]))


def test_a_transposed_product_needs_three_dimensions() -> None:
    run = tf.function(
        batch_matmul_transpose,
        jit_compile=True,
        autograph=False,
        input_signature=[tf.TensorSpec(None)] * 2,
    )
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"\[3,4\].*\[4,5\]"):
        run(tf.ones([3, 4]), tf.ones([4, 5]))


def test_attention() -> None:
    """An attention of stock ops under XLA, which we stay out of, and one of ours."""
    tf_tvm_ops.load()
    q, k, v = (random_array((2, 3, 5, 4), "float32", seed) for seed in range(3))
    mask = random_array((2, 1, 1, 5), "float32", 3)

    def stock(q: Any, k: Any, v: Any, mask: Any) -> Any:
        weights = tf.nn.softmax(tf.matmul(q, k, transpose_b=True) * 0.5 + mask)
        return tf.transpose(tf.matmul(weights, v), [0, 2, 1, 3])

    def ours(q: Any, k: Any, v: Any, mask: Any) -> Any:
        weights = tf.nn.softmax(batch_matmul_add(q, k, mask, adj_y=True, scale=0.5))
        return batch_matmul_transpose(weights, v)

    for function in (stock, ours):
        run = tf.function(function, jit_compile=True, autograph=False)
        np.testing.assert_allclose(run(q, k, v, mask), stock(q, k, v, mask), rtol=1e-5, atol=1e-6)


def test_saved_model_with_a_compiled_function(tmp_path: Path) -> None:
    """Opened in another process, it still differentiates."""

    class Scores(tf.Module):
        @tf.function(
            jit_compile=True, autograph=False, input_signature=[tf.TensorSpec([None, 3, 4])]
        )
        def __call__(self, x: tf.Tensor) -> tf.Tensor:
            return batch_matmul_add(x, x, tf.constant(1.0), adj_y=True, scale=0.5)

    tf.saved_model.save(Scores(), str(tmp_path))
    printed = output_with_tensorflow(
        f"""
        import tensorflow as tf
        import tf_tvm_ops
        tf_tvm_ops.load()
        model = tf.saved_model.load({str(tmp_path)!r})
        x = tf.ones([2, 3, 4])
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = model(x)
        print(set(y.numpy().ravel().tolist()), set(tape.gradient(y, x).numpy().ravel().tolist()))
        """
    )
    assert printed == "{3.0} {3.0}"


_CLUSTERED = """
import numpy as np
import tensorflow as tf
import tf_tvm_ops

tf.config.optimizer.set_jit("autoclustering")
rng = np.random.default_rng(0)
lhs, rhs = rng.random((2, 3, 5, 4), np.float32), rng.random((2, 3, 7, 4), np.float32)

@tf.function(autograph=False)
def run(lhs, rhs):
    x = tf_tvm_ops.batch_matmul(lhs, rhs, adj_y=True, scale=0.5, name="product")
    x = tf_tvm_ops.batch_matmul_add(tf.tanh(x), rhs, tf.ones([4]), name="sum")
    return tf_tvm_ops.batch_matmul_transpose(tf.tanh(x), rhs, adj_y=True, name="transposed")

got = run(lhs, rhs).numpy()
x = np.tanh(0.5 * lhs @ rhs.swapaxes(-1, -2))
x = np.tanh(x @ rhs + 1) @ rhs.swapaxes(-1, -2)
np.testing.assert_allclose(got, x.swapaxes(1, 2), rtol=1e-5)
print(got.shape)
"""


@pytest.mark.parametrize("kernels", ["on", "off"])
def test_auto_clustering(kernels: str, tmp_path: Path) -> None:
    """What XLA compiled is what it dumps; without our kernels it leaves our ops out."""
    printed = output_of(
        _CLUSTERED,
        TF_TVM_OPS_XLA=kernels,
        TF_XLA_FLAGS="--tf_xla_cpu_global_jit --tf_xla_min_cluster_size=1",
        XLA_FLAGS=f"--xla_dump_to={tmp_path} --xla_dump_hlo_as_text",
    )
    assert printed == "(2, 5, 3, 7)"
    compiled = "".join(file.read_text() for file in tmp_path.glob("*before_optimizations.txt"))
    assert "Tanh" in compiled
    for op in ("TvmBatchMatMul", "TvmBatchMatMulAdd", "TvmBatchMatMulTranspose"):
        assert (f'op_type="{op}"' in compiled) == (kernels == "on")
