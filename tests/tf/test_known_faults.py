"""What users of such software have met: an input of each kind, on every op and dtype."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tf_tvm_ops import batch_matmul, batch_matmul_add, batch_matmul_transpose

from ..cases import ADJOINTS, DTYPES, Case, in_dtypes, numpy_dtype, product
from ..oracle import Array
from .family import FALLBACKS, check, check_case, compute, compute_transposed, fallback


def _ones(shape: tuple[int, ...], dtype: str = "float32") -> Array:
    return np.ones(shape, numpy_dtype(dtype))


@pytest.mark.parametrize("value", FALLBACKS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_sum_without_terms_is_zero(dtype: str, value: str) -> None:
    a, b = _ones((2, 3, 0), dtype), _ones((2, 0, 4), dtype)
    with fallback(value) as run:
        assert (run(batch_matmul, a, b).numpy() == np.zeros((2, 3, 4))).all()
        assert (run(batch_matmul_add, a, b, _ones((4,), dtype)).numpy() == np.ones((2, 3, 4))).all()
        got = run(batch_matmul_transpose, a, b)
    assert got.shape == (3, 2, 4)
    assert (got.numpy() == 0).all()


@pytest.mark.parametrize("value", FALLBACKS)
@pytest.mark.parametrize(
    "case",
    [
        Case((13, 1, 3, 4), (4, 16)),
        Case((9, 1, 2, 3), (3, 3)),
        Case((4, 3), (13, 1, 16, 4), adj_x=True, adj_y=True),
        Case((13, 1, 3, 4), (4, 16), addend=(1, 5, 1, 16)),
        Case((13, 3, 1, 4), (4, 16), a_length_first=True),
    ],
    ids=str,
)
def test_a_broadcast_operand_is_not_read_past_its_end(case: Case, value: str) -> None:
    with fallback(value) as run:
        for each in in_dtypes([case]):
            check_case(each, run)


@pytest.mark.parametrize("batch", [65535, 65536, 131072])
@pytest.mark.parametrize("dtype", DTYPES)
def test_many_matrices_of_one_element(dtype: str, batch: int) -> None:
    ones = _ones((batch, 1, 1), dtype)
    outputs = [
        batch_matmul(ones, ones),
        batch_matmul_add(ones, ones, ones * 0),
        tf.transpose(batch_matmul_transpose(ones, ones), [1, 0, 2]),
    ]
    for got in outputs:
        assert got.shape == (batch, 1, 1)
        assert (got.numpy() == 1).all()


@pytest.mark.parametrize("value", ["auto", "stock"])
def test_many_small_matrices(value: str) -> None:
    lhs, rhs = _ones((65536, 16, 8)), _ones((65536, 8, 16))
    with fallback(value) as run:
        product_ = run(batch_matmul, lhs, rhs)
        total = run(batch_matmul_add, lhs, rhs, np.arange(65536.0, dtype="f").reshape(-1, 1, 1))
        transposed = run(batch_matmul_transpose, lhs, rhs)
    assert product_.shape == (65536, 16, 16)
    assert transposed.shape == (16, 65536, 16)
    assert (product_.numpy() == 8).all()
    assert (transposed.numpy() == 8).all()
    assert (total.numpy()[:, 3, 5] == 8 + np.arange(65536)).all()


@pytest.mark.parametrize("adj_x", [False, True])
def test_many_rows(adj_x: bool) -> None:
    rows = 2**21 + 10
    lhs = np.arange(2 * rows, dtype=np.float32).reshape(rows, 2) % 97
    rhs = np.array([[1, 2], [3, 4]], np.float32)
    a, want = lhs.T.copy() if adj_x else lhs, lhs @ rhs
    np.testing.assert_array_equal(batch_matmul(a, rhs, adj_x=adj_x), want)
    added = batch_matmul_add(a, rhs, lhs, adj_x=adj_x)
    np.testing.assert_array_equal(added, want + lhs)
    transposed = batch_matmul_transpose(a[None], rhs[None], adj_x=adj_x)
    np.testing.assert_array_equal(transposed, want[:, None])


@pytest.mark.large
@pytest.mark.parametrize("value", FALLBACKS)
def test_more_than_2_31_outputs(value: str) -> None:
    rows, columns = 65536, 32769
    lhs = (np.arange(rows) % 7).astype(np.float16).reshape(1, rows, 1)
    rhs = (np.arange(columns) % 5).astype(np.float16).reshape(1, columns, 1)
    addend = (np.arange(columns) % 3).astype(np.float16).reshape(1, columns)
    with fallback(value) as run:
        for function, arrays in (
            (lambda a, b, c: batch_matmul_add(a, b, c, adj_y=True), (lhs, rhs, addend)),
            (lambda a, b: batch_matmul(a, b, adj_y=True), (lhs, rhs)),
            (lambda a, b: batch_matmul_transpose(a, b, adj_y=True), (lhs, rhs)),
        ):
            got = tf.reshape(run(function, *arrays), [rows, columns])
            for row in (0, 1, 32767, 65534, 65535):
                want = lhs[0, row, 0] * rhs[0, :, 0] + (addend[0] if len(arrays) == 3 else 0)
                np.testing.assert_array_equal(got[row].numpy(), want)
            del got


def test_more_elements_than_can_be_counted() -> None:
    many = tf.zeros([2**32, 0], tf.float16)
    for function in (batch_matmul, lambda a, b, **k: batch_matmul_add(a, b, 1, **k)):
        with pytest.raises(tf.errors.InvalidArgumentError, match="too large"):
            function(many, many, adj_y=True)


@pytest.mark.large  # TensorFlow waits ten seconds for memory
def test_more_elements_than_can_be_stored() -> None:
    storable = tf.zeros([2**22, 1], tf.float16)
    with pytest.raises(tf.errors.ResourceExhaustedError):
        batch_matmul(storable, storable, adj_y=True)


@pytest.mark.parametrize("rank", [2, 3, 5, 6, 9])
def test_ranks(rank: int) -> None:
    batch = (2, 1, 3, 1, 2, 1, 2)[: rank - 2]
    for case in (
        product(batch, 3, 4, 5),
        product(batch, 3, 4, 5, rhs_batch=()),
        product(batch, 3, 4, 5, lhs_batch=(), adj_y=True),
        product(batch, 3, 4, 5, addend=(1,) * (rank - 2) + (3, 4)),
        product((), 3, 4, 5, addend=(*batch, 1, 4)),
    ):
        for each in in_dtypes([case]):
            check_case(each)
    if rank > 2:
        check_case(product(batch, 3, 4, 5, a_length_first=True, b_length_first=True))


@pytest.mark.parametrize("dtype", [tf.int32, tf.int64, tf.uint8, tf.complex64, tf.complex128])
def test_other_dtypes_are_refused(dtype: tf.DType) -> None:
    """Also complex ones, whose adjoint would be conjugated."""
    ones = tf.ones([2, 2, 2], dtype)
    refusals = (tf.errors.InvalidArgumentError, tf.errors.NotFoundError, TypeError)
    with pytest.raises(refusals):
        batch_matmul(ones, ones)
    with pytest.raises(refusals):
        batch_matmul_add(ones, ones, ones)
    with pytest.raises(refusals):
        batch_matmul_transpose(ones, ones, adj_x=True)


@pytest.mark.parametrize("value", FALLBACKS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("adj_x", "adj_y"), ADJOINTS)
def test_nan_stays_in_its_row(adj_x: bool, adj_y: bool, dtype: str, value: str) -> None:
    """A kernel that pads K must not multiply the padding by what lies beyond a row."""
    case = product((2,), 3, 7, 33, adj_x, adj_y, dtype=dtype)
    lhs, rhs = case.operands()
    lhs[..., 1:] = np.nan if adj_x else lhs[..., 1:]
    if not adj_x:
        lhs[:, 1:] = np.nan
    with fallback(value) as run:
        added = replace(case, addend=(7,), scale=0.5)
        addend = added.random_addend()
        for each, got in (
            (case, run(lambda a, b: compute(case, a, b), lhs, rhs)),
            (added, run(lambda a, b, c: compute(added, a, b, c), lhs, rhs, addend)),
        ):
            check(each, got, lhs, rhs, addend if each is added else None)
            assert np.isfinite(np.asarray(got, np.float64)[:, 0]).all()
            assert np.isnan(np.asarray(got, np.float64)[:, 1:]).all()
        got = run(lambda a, b: compute_transposed(case, a, b), lhs, rhs)
        assert np.isfinite(np.asarray(got, np.float64)[0]).all()
        assert np.isnan(np.asarray(got, np.float64)[1:]).all()


@pytest.mark.parametrize("special", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("extent", [1, 7, 17, 33])
def test_special_values_reach_their_row(special: float, extent: int) -> None:
    """Also through a zero of the other operand: 0·NaN is NaN."""
    for case in in_dtypes([Case((2, extent, extent), (2, extent, extent))]):
        lhs, rhs = case.operands()
        lhs[1, extent // 2, extent - 1] = special
        rhs[1, extent - 1, 0] = 0
        check(case, compute(case, lhs, rhs), lhs, rhs)
        added = replace(case, addend=(2, extent, extent))
        addend = added.random_addend()
        assert addend is not None
        addend[0, 0, extent - 1] = special
        check(added, compute(added, lhs, rhs, addend), lhs, rhs, addend)


@pytest.mark.parametrize("value", FALLBACKS)
@pytest.mark.parametrize(("dtype", "terms"), [("float16", 4096), ("bfloat16", 1024)])
@pytest.mark.parametrize(("m", "n"), [(1, 1), (1, 17), (17, 1), (17, 19)])
def test_sums_are_longer_than_the_dtype_is_exact(
    m: int, n: int, dtype: str, terms: int, value: str
) -> None:
    """Summed in float16, ones stop counting at 2048; in bfloat16 at 256."""
    lhs, rhs = _ones((1, m, terms), dtype), _ones((1, terms, n), dtype)
    with fallback(value) as run:
        outputs: list[Any] = [
            run(batch_matmul, lhs, rhs),
            run(batch_matmul_add, lhs, rhs, _ones((1,), dtype) * 0),
            tf.transpose(run(batch_matmul_transpose, lhs, rhs), [1, 0, 2]),
        ]
    for got in outputs:
        assert got.shape == (1, m, n)
        assert (got.numpy() == terms).all()


@pytest.mark.parametrize("value", FALLBACKS)
def test_a_result_that_is_too_large_is_infinite(value: str) -> None:
    large = np.full((1, 1, 2), 200, np.float16)
    with fallback(value) as run:
        for function in (batch_matmul, batch_matmul_transpose):
            got = run(lambda a, f=function: f(a, a, adj_y=True), large)
            assert got.numpy().tolist() == [[[np.inf]]]
        got = run(lambda a: batch_matmul_add(a, a, np.float16(1), adj_y=True), large)
        assert got.numpy().tolist() == [[[np.inf]]]
