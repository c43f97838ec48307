"""The three ops against the oracle: layouts, scales, addends, dtypes, every way to serve them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

from tf_tvm_ops import batch_matmul, batch_matmul_add, batch_matmul_transpose
from tf_tvm_ops.ops import served_by

from ..cases import (
    ADJOINTS,
    DTYPES,
    Case,
    in_dtypes,
    listed,
    listed_family,
    many_alternating_batches,
    numpy_dtype,
    product,
    random_array,
    random_cases,
)
from ..oracle import Array
from .family import (
    FALLBACKS,
    address,
    check,
    check_case,
    check_transposed,
    compute,
    compute_transposed,
    fallback,
    has_transpose,
    misaligned,
)


@pytest.mark.parametrize("case", listed() + listed_family(), ids=str)
def test_listed_cases(case: Case) -> None:
    for each in in_dtypes([case]):
        check_case(each)


@given(random_cases())
def test_random_cases(case: Case) -> None:
    check_case(case)


@given(random_cases(least=1), st.sampled_from(FALLBACKS))
def test_random_cases_under_each_fallback(case: Case, value: str) -> None:
    with fallback(value) as run:
        check_case(case, run)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("value", ["generic", "stock"])
def test_listed_cases_under_each_fallback(value: str, dtype: str) -> None:
    with fallback(value) as run:
        for case in listed_family():
            check_case(replace(case, dtype=dtype), run)


def _misaligned_cases() -> list[Case]:
    cases = []
    for m, n, k in ((3, 7, 33), (1, 17, 64), (7, 7, 7), (2, 300, 200)):
        for adj_x, adj_y in ADJOINTS:
            cases.append(product((2,), m, n, k, adj_x, adj_y))
        both = {"a_length_first": True, "b_length_first": True}
        cases.append(product((2,), m, n, k, **both, addend=(m, n), scale=0.5))
        cases.append(product((2,), m, n, k, addend=(3, 1, m, 1)))
    return in_dtypes(cases)


@pytest.mark.parametrize("case", _misaligned_cases(), ids=str)
def test_misaligned_operands(case: Case) -> None:
    lhs, rhs = case.operands()
    addend = case.random_addend()
    arrays = [lhs, rhs] if addend is None else [lhs, rhs, addend]
    tensors = [misaligned(x) for x in arrays]
    assert all(address(tensor) % 64 == lhs.dtype.itemsize for tensor in tensors)
    check(case, compute(case, *tensors), *arrays)
    with fallback("stock") as run:
        check(case, run(lambda *x: compute(case, *x), *tensors), *arrays)
    if has_transpose(case):
        check_transposed(case, compute_transposed(case, *tensors), lhs, rhs)


def _graph_cases() -> list[Case]:
    cases = [
        Case((3, 4), (4, 5)),
        Case((2, 1, 3, 4), (6, 4, 5), addend=(5,)),
        product((2, 3), 5, 7, 4, True, True, a_length_first=True, b_length_first=True),
        Case((2, 3, 0), (0, 4), addend=(2, 1, 4), scale=2.0),
        Case((5, 3), (3, 1), addend=(6, 1, 4)),
    ]
    return in_dtypes(cases)


@pytest.mark.parametrize("case", _graph_cases(), ids=str)
def test_unknown_shapes(case: Case) -> None:
    unknown = tf.TensorSpec(None, case.dtype)

    def run(function: object, *arrays: Array) -> tf.Tensor:
        signature = [unknown] * len(arrays)
        return tf.function(function, input_signature=signature, autograph=False)(*arrays)

    check_case(case, run)


@pytest.mark.parametrize("case", _graph_cases(), ids=str)
def test_session(case: Case) -> None:
    def run(function: object, *arrays: Array) -> Array:
        with tf.Graph().as_default(), tf.compat.v1.Session() as session:
            inputs = [tf.compat.v1.placeholder(case.dtype) for _ in arrays]
            fed = dict(zip(inputs, arrays))
            return session.run(function(*inputs), fed)  # type: ignore[operator]

    check_case(case, run)


def test_names() -> None:
    with tf.Graph().as_default():
        a = tf.compat.v1.placeholder(tf.float32, [2, 3, 3])
        for name, output in (
            ("product", batch_matmul(a, a, name="product")),
            ("sum", batch_matmul_add(a, a, 1.0, name="sum")),
            ("transposed", batch_matmul_transpose(a, a, name="transposed")),
        ):
            assert output.name == f"{name}:0"


@pytest.mark.parametrize("value", FALLBACKS)
@pytest.mark.parametrize(("dtype", "many"), [("float16", 2048.0), ("bfloat16", 256.0)])
@pytest.mark.parametrize("columns", [1, 3])
def test_16_bit_results_are_rounded_once(columns: int, dtype: str, many: float, value: str) -> None:
    """``many + 0.5`` has no such number, nor has ``many + 1``, a tie that goes to ``many``.

    Rounded before 1.5 is added, the sum would be ``many + 1.5``, and not the tie ``many + 2``.
    With several columns the addend enlarges the product.
    """
    lhs = np.array([[many, 0.5]], numpy_dtype(dtype))
    rhs = np.ones((2, 1), numpy_dtype(dtype))
    with fallback(value) as run:
        for added, want in ((0.0, many), (0.5, many), (0.75, many + 2)):
            addend = np.full((1, columns), added, numpy_dtype(dtype))
            got = run(batch_matmul_add, lhs, rhs, addend)
            assert np.asarray(got, np.float64).tolist() == [[want] * columns]
        # The scale, too: many + 0.5 is more than 1.0 and a bit.
        got = run(lambda a, b: batch_matmul(a, b, scale=1 - 0.4 / many), lhs, rhs)
        assert float(got[0, 0]) == many
    # 125000 is too large for float16, 65000 is not.
    large = np.array([[250.0, 250.0]], np.float16)
    addend = np.full((1, columns), -60000, np.float16)
    with fallback(value) as run:
        got = run(lambda a, b: batch_matmul_add(a, a, b, adj_y=True), large, addend)
    assert got.numpy().tolist() == [[float(np.float16(65000))] * columns]


def test_scale_is_exact_in_float64() -> None:
    third = 1 / 3
    one = np.ones((1, 1))
    assert batch_matmul(one, one, scale=third).numpy()[0, 0] == third
    assert batch_matmul(one, one, scale=2.0**-1000).numpy()[0, 0] == 2.0**-1000
    assert batch_matmul(one, one, scale=np.float64(third)).numpy()[0, 0] == third
    assert batch_matmul(one, one, scale=3).numpy()[0, 0] == 3


@pytest.mark.parametrize("value", FALLBACKS)
def test_special_values_of_scale_and_addend(value: str) -> None:
    lhs = np.array([[1.0], [np.inf], [0.0]], np.float32)
    one = np.ones((1, 1), np.float32)
    with fallback(value) as run:
        zero = run(lambda a, b: batch_matmul(a, b, scale=0.0), lhs, one).numpy().ravel()
        np.testing.assert_array_equal(zero, [0, np.nan, 0])
        infinite = run(lambda a, b: batch_matmul(a, b, scale=float("inf")), lhs, one)
        np.testing.assert_array_equal(infinite.numpy().ravel(), [np.inf, np.inf, np.nan])
        addend = np.array([[np.nan], [-np.inf], [-np.inf]], np.float32)
        added = run(batch_matmul_add, lhs, one, addend).numpy().ravel()
        np.testing.assert_array_equal(added, [np.nan, np.nan, -np.inf])
        # As 0 * inf, which is what stock computes.
        empty = run(lambda a, b: batch_matmul(a, b, scale=float("inf")), lhs[:, :0], one[:0])
        assert np.isnan(empty.numpy()).all()


@pytest.mark.parametrize("value", FALLBACKS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_the_sign_of_zero_is_kept(dtype: str, value: str) -> None:
    """Without an addend nothing is added, not even +0."""
    zero = np.zeros((1, 1, 1), numpy_dtype(dtype))
    with fallback(value) as run:
        for function in (batch_matmul, batch_matmul_transpose):
            got = run(lambda a, f=function: f(a, a, scale=-2.0), zero)
            assert np.signbit(got.numpy())
        added = run(lambda a: batch_matmul_add(a, a, a, scale=-2.0), zero)
        assert not np.signbit(added.numpy())


def test_more_batch_dimensions_than_the_dispatcher_takes() -> None:
    for case in in_dtypes([many_alternating_batches()]):
        lhs, rhs = case.operands()
        assert served_by(lhs, rhs).numpy() == b"stock (rank)"
        assert served_by(lhs, rhs, transpose=True).numpy() == b"stock (rank)"


_SHORT = {"float32": "f32", "float16": "f16", "bfloat16": "bf16", "float64": "f64"}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("adj_x", "adj_y"), ADJOINTS)
def test_every_layout_is_served_by_a_kernel(adj_x: bool, adj_y: bool, dtype: str) -> None:
    """Other orders of dimensions are strides, not copies, and not a reason for stock."""
    kind = f"bmm_{_SHORT[dtype]}_generic_l{'m' if adj_x else 'k'}_r{'k' if adj_y else 'n'}"
    for first in (False, True):
        for transpose in (False, True):
            flags = {"a_length_first": first, "b_length_first": first}
            case = product((2, 3), 11, 13, 19, adj_x, adj_y, rhs_batch=(3,), dtype=dtype, **flags)
            lhs, rhs = case.operands()
            server = served_by(lhs, rhs, adj_x, adj_y, transpose=transpose, **flags).numpy()
            assert server.decode().startswith(kind)


def test_empty_products_need_no_kernel() -> None:
    assert served_by(tf.ones([2, 3, 0]), tf.ones([2, 0, 4])).numpy() == b"zeros"
    assert served_by(tf.ones([0, 3, 2]), tf.ones([2, 4])).numpy() == b"zeros"


_STATIC = [
    # lhs, rhs, addend, options, shape of the product or of the sum
    ([2, 3, 4], [2, 4, 5], None, {}, [2, 3, 5]),
    ([None, 3, 4], [2, 4, 5], None, {}, [2, 3, 5]),
    ([None, 3, 4], [None, 4, 5], None, {}, [None, 3, 5]),
    ([7, 1, None, 4], [5, 4, None], None, {}, [7, 5, None, None]),
    ([4, None], [6, 4], None, {"adj_x": True, "adj_y": True}, [None, 6]),
    (None, [4, 5], None, {}, None),
    ([2, 3, 4], None, None, {}, None),
    ([2, 3, 0], [0, 5], None, {}, [2, 3, 5]),
    ([2, 3, 6, 4], [4, 5], None, {"a_length_first": True}, [2, 6, 3, 5]),
    ([2, None, 6, 4], [2, 7, 6, 4], None, {"a_length_first": True, "b_length_first": True, "adj_y": True}, [2, 6, None, 7]),  # noqa: E501
    ([2, 3, 6, 4], [2, 3, 6, 5], None, {"a_length_first": True, "adj_x": True, "b_length_first": True}, [2, 6, 4, 5]),  # noqa: E501
    (None, [2, 4, 6, 5], None, {"a_length_first": True, "b_length_first": True}, None),
    ([2, 3, 4], [2, 4, 5], [5], {}, [2, 3, 5]),
    ([2, 3, 4], [2, 4, 5], [None], {}, [2, 3, 5]),
    ([None, 3, 4], [4, 5], [2, 1, 1], {}, [2, 3, 5]),
    ([None, 3, 4], [4, 5], [None, 1, 1], {}, [None, 3, 5]),
    ([5, 3], [3, 1], [6, 1, 4], {}, [6, 5, 4]),
    ([5, 3], [3, 1], None, {"addend": None}, None),
    ([5, 3], [3, 4], [7, None, None, None], {}, [7, None, 5, 4]),
]  # fmt: skip


@pytest.mark.parametrize(("lhs", "rhs", "addend", "arguments", "output"), _STATIC)
def test_static_shapes(
    lhs: list[int | None] | None,
    rhs: list[int | None] | None,
    addend: list[int | None] | None,
    arguments: dict[str, bool | None],
    output: list[int | None] | None,
) -> None:
    with tf.Graph().as_default():
        a, b, c = (tf.compat.v1.placeholder(tf.float32, shape) for shape in (lhs, rhs, addend))
        unknown_addend = "addend" in arguments
        flags = {key: value for key, value in arguments.items() if key != "addend"}
        if addend is not None or unknown_addend:
            got = batch_matmul_add(a, b, c, **flags)
        else:
            got = batch_matmul(a, b, **flags)
            transposed = batch_matmul_transpose(a, b, **flags) if got.shape.rank != 2 else None
            if transposed is not None and output is not None:
                *batch, heads, rows, columns = output
                assert transposed.shape.as_list() == [*batch, rows, heads, columns]
            elif transposed is not None:
                assert transposed.shape.rank is None
    if output is None:
        assert got.shape.rank is None
    else:
        assert got.shape.as_list() == output


@pytest.mark.parametrize("dtype", DTYPES)
def test_random_operands_are_not_all_alike(dtype: str) -> None:
    """What the other tests rest on."""
    x = random_array((4, 5), dtype, 0).astype(np.float64)
    assert len(np.unique(x)) > 10
    assert (random_array((4, 5), dtype, 1).astype(np.float64) != x).any()
