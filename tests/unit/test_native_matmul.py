"""Products of strided arrays through the dispatcher: Plan of cc/dispatch/product.cc."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests import cases, oracle
from tests.cases import Case
from tf_tvm_ops import _native

from .arrays import Array, check, random_array, with_strides
from .fake_packs import GENERIC, V3, FakeKernel, write_pack


@pytest.mark.parametrize("case", cases.listed(), ids=str)
def test_listed_products(dispatcher: _native.Dispatcher, case: Case) -> None:
    lhs, rhs = case.operands()
    lhs = oracle.transpose(lhs) if case.adj_x else lhs
    rhs = oracle.transpose(rhs) if case.adj_y else rhs
    if case == cases.many_alternating_batches():
        with pytest.raises(LookupError, match=r"rank$"):
            dispatcher.matmul(lhs, rhs)
        return
    out, _ = dispatcher.matmul(lhs, rhs)
    oracle.check_matmul(out, lhs, rhs)
    out, _ = dispatcher.matmul(lhs, rhs, threads=3, kernel="generic")
    oracle.check_matmul(out, lhs, rhs)


# (shape, strides) of lhs and of rhs, and the orders expected. A row each for the degenerate cases:
# an extent of 1 has no stride that means anything, whatever is written there.
ORDERS = [
    pytest.param((3, 5), (5, 1), (5, 4), (4, 1), "k", "n", id="row-major"),
    pytest.param((3, 5), (1, 3), (5, 4), (1, 5), "m", "k", id="column-major"),
    pytest.param((3, 5), (9, 1), (5, 4), (7, 1), "k", "n", id="gaps-between-rows"),
    pytest.param((3, 5), (1, 9), (5, 4), (1, 7), "m", "k", id="gaps-between-columns"),
    pytest.param((3, 5), (1, 1), (5, 4), (1, 1), "k", "n", id="sliding-window"),
    pytest.param((3, 5), (0, 1), (5, 4), (0, 1), "k", "n", id="rows-all-the-same"),
    pytest.param((3, 5), (1, 0), (5, 4), (1, 0), "m", "k", id="columns-all-the-same"),
    pytest.param((1, 5), (5, 1), (5, 4), (4, 1), "k", "n", id="m=1"),
    pytest.param((1, 5), (0, 1), (5, 4), (4, 1), "k", "n", id="m=1-row-stride-0"),
    pytest.param((1, 5), (1, 1), (5, 4), (4, 1), "k", "n", id="m=1-transposed"),
    pytest.param((1, 5), (999, 3), (5, 4), (4, 1), "m", "n", id="m=1-strided"),
    pytest.param((1, 5), (1, 0), (5, 4), (4, 1), "m", "n", id="m=1-column-stride-0"),
    pytest.param((3, 5), (5, 1), (5, 1), (1, 1), "k", "k", id="n=1"),
    pytest.param((3, 5), (5, 1), (5, 1), (1, 0), "k", "k", id="n=1-column-stride-0"),
    pytest.param((3, 5), (5, 1), (5, 1), (3, 999), "k", "n", id="n=1-strided"),
    pytest.param((3, 5), (5, 1), (5, 1), (0, 1), "k", "n", id="n=1-row-stride-0"),
    pytest.param((3, 1), (1, 1), (1, 4), (4, 1), "k", "n", id="k=1"),
    pytest.param((3, 1), (2, 999), (1, 4), (999, 3), "k", "k", id="k=1-strided"),
    pytest.param((3, 1), (1, 3), (1, 4), (1, 1), "k", "n", id="k=1-transposed"),
    pytest.param((3, 1), (0, 0), (1, 4), (0, 0), "k", "k", id="k=1-stride-0"),
    pytest.param((1, 1), (7, 9), (1, 1), (7, 9), "k", "k", id="all-1-strided"),
    pytest.param((1, 1), (0, 0), (1, 1), (0, 0), "k", "k", id="all-1-stride-0"),
    pytest.param((1, 5), (5, 1), (5, 1), (1, 1), "k", "k", id="m=n=1"),
    pytest.param((1, 5), (9, 2), (5, 1), (2, 9), "m", "n", id="m=n=1-strided"),
    pytest.param((3, 0), (0, 1), (0, 4), (4, 1), "k", "n", id="k=0"),
    pytest.param((3, 0), (7, 9), (0, 4), (7, 9), "k", "k", id="k=0-strided"),
    pytest.param((3, 0), (0, 0), (0, 1), (0, 0), "k", "k", id="k=0-n=1"),
]


@pytest.mark.parametrize(
    ("lhs_shape", "lhs_strides", "rhs_shape", "rhs_strides", "lhs_order", "rhs_order"), ORDERS
)
@pytest.mark.parametrize("batch", [(), (4,), (2, 3)], ids=str)
def test_orders(
    dispatcher: _native.Dispatcher,
    batch: tuple[int, ...],
    lhs_shape: tuple[int, int],
    lhs_strides: tuple[int, int],
    rhs_shape: tuple[int, int],
    rhs_strides: tuple[int, int],
    lhs_order: str,
    rhs_order: str,
) -> None:
    batch_strides = (150, 50)[2 - len(batch) :]
    lhs = with_strides(batch + lhs_shape, batch_strides + lhs_strides, seed=1)
    rhs = with_strides(batch + rhs_shape, batch_strides + rhs_strides, seed=2)
    kernel = check(dispatcher, lhs, rhs, kernel="generic")
    assert (kernel.lhs, kernel.rhs) == (lhs_order, rhs_order)
    # The same with broadcast batches: stride 0, in one operand and in both.
    check(dispatcher, np.broadcast_to(lhs[:1] if batch else lhs, lhs.shape), rhs)
    check(dispatcher, np.broadcast_to(lhs, (2, *lhs.shape)), rhs)


@pytest.mark.parametrize(
    ("lhs_strides", "rhs_strides"),
    [((10, 2), (4, 1)), ((5, 1), (8, 2)), ((0, 0), (4, 1)), ((5, 1), (0, 0))],
    ids=str,
)
def test_no_contiguous_dimension(
    dispatcher: _native.Dispatcher, lhs_strides: tuple[int, int], rhs_strides: tuple[int, int]
) -> None:
    lhs, rhs = with_strides((3, 5), lhs_strides), with_strides((5, 4), rhs_strides)
    with pytest.raises(LookupError, match=r"\(3, 5\).*\(5, 4\): layout$"):
        dispatcher.matmul(lhs, rhs)


def test_strides_that_are_not_whole_elements(dispatcher: _native.Dispatcher) -> None:
    record = np.zeros((3, 5), dtype=[("value", "<f4"), ("flag", "u1")])
    lhs, rhs = record["value"], random_array(5, 4)
    assert lhs.strides == (25, 5)
    with pytest.raises(LookupError, match=r"layout$"):
        dispatcher.matmul(lhs, rhs)
    unaligned = np.frombuffer(bytes(61), dtype="<f4", offset=1).reshape(3, 5)
    with pytest.raises(LookupError, match=r"layout$"):
        dispatcher.matmul(unaligned, rhs)


def test_negative_strides(dispatcher: _native.Dispatcher) -> None:
    lhs, rhs = random_array(2, 6, 3, 5), random_array(2, 6, 5, 4, seed=1)
    check(dispatcher, lhs[::-1, ::-2, ::-1], rhs[::-1, ::2, ::-1])


def test_fixed_kernel_serves_its_problem_and_nothing_else(dispatcher: _native.Dispatcher) -> None:
    lhs, rhs = random_array(7, 3, 5), random_array(7, 5, 4, seed=1)
    kernel = check(dispatcher, lhs, rhs)
    assert (kernel.m, kernel.n, kernel.k) == (3, 4, 5)
    assert kernel.problem == "float32 3x4x5 lhs:k rhs:n"
    assert check(dispatcher, lhs, rhs, kernel="generic").is_generic
    other = check(dispatcher, lhs[:, :2], rhs)
    assert other.is_generic
    assert other.problem == "float32 generic lhs:k rhs:n"
    transposed = check(dispatcher, oracle.transpose(random_array(7, 5, 3)), rhs)
    assert transposed.is_generic
    assert transposed.lhs == "m"


def test_workspace_of_each_thread(dispatcher: _native.Dispatcher) -> None:
    lhs, rhs = random_array(50_000, 2, 3), random_array(50_000, 3, 7, seed=1)
    kernel = check(dispatcher, lhs, rhs, threads=8)
    assert kernel.symbol == "fake_float32_2x7x3_lk_rn_scratch"


@pytest.mark.parametrize(
    "view",
    [
        pytest.param(lambda o: o[:, :, :3, :4], id="gaps"),
        pytest.param(lambda o: o[::-1, ::2, ::2, :4], id="steps"),
        pytest.param(lambda o: o.transpose(1, 2, 0, 3)[:, :, :3, :4], id="heads-inside"),
        pytest.param(lambda o: o.transpose(2, 0, 1, 3)[:, :, :3, :4], id="order-of-batches"),
    ],
)
@pytest.mark.parametrize("broadcast", [False, True])
def test_output_of_any_strides(dispatcher: _native.Dispatcher, view: Any, broadcast: bool) -> None:
    """The elements of the result are all written, and no others."""
    room = np.full((6, 6, 6, 7), np.nan, np.float32)
    out = view(room)
    lhs, rhs = random_array(*out.shape[:3], 5), random_array(*out.shape[:2], 5, 4, seed=1)
    if broadcast:
        rhs = rhs[0]
    got, _ = dispatcher.matmul(lhs, rhs, threads=3, out=out)
    assert got is out
    oracle.check_matmul(out, lhs, rhs)
    assert np.isfinite(room).sum() == out.size
    # An empty sum is written in the same places.
    dispatcher.matmul(lhs[..., :0], rhs[..., :0, :], out=out)
    assert (out == 0).all()
    assert np.isfinite(room).sum() == out.size


def test_outputs_that_do_not_fit(dispatcher: _native.Dispatcher) -> None:
    lhs, rhs = random_array(3, 5), random_array(5, 4)
    with pytest.raises(LookupError, match=r"layout$"):
        dispatcher.matmul(lhs, rhs, out=np.empty((4, 3), np.float32).T)
    column = np.full((3, 4), np.nan, np.float32)[:, :1]
    check(dispatcher, lhs, rhs[:, :1], out=column[:, ::-1])
    with pytest.raises(ValueError, match=r"out: expected shape \(3, 4\), got \(3, 3\)"):
        dispatcher.matmul(lhs, rhs, out=np.empty((3, 3), np.float32))
    with pytest.raises(TypeError, match="out: expected dtype float32, that of lhs, got float64"):
        dispatcher.matmul(lhs, rhs, out=np.empty((3, 4)))
    locked = np.empty((3, 4), np.float32)
    locked.setflags(write=False)
    with pytest.raises(ValueError, match="out: expected a writeable array"):
        dispatcher.matmul(lhs, rhs, out=locked)


def test_batches_that_do_not_merge(dispatcher: _native.Dispatcher) -> None:
    lhs = random_array(2, 3, 4, 2, 3, 5)[::1, ::2, ::3]
    rhs = random_array(2, 1, 2, 1, 5, 4, seed=1)
    for threads in (1, 2, 5, 16):
        check(dispatcher, lhs, rhs, threads=threads)
    # Eight dimensions of which no two merge are as many as a product may have.
    lhs = random_array(*(2, 1) * 4, 3, 5)
    rhs = random_array(*(1, 2) * 4, 5, 4, seed=1)
    check(dispatcher, lhs, rhs, threads=3)
    with pytest.raises(LookupError, match=r"rank$"):
        dispatcher.matmul(lhs[None], np.stack([rhs] * 2))


def test_batches_that_merge_may_have_any_rank(dispatcher: _native.Dispatcher) -> None:
    lhs, rhs = random_array(*(2,) * 10, 3, 5), random_array(*(2,) * 10, 5, 4, seed=1)
    check(dispatcher, lhs, rhs)
    check(dispatcher, lhs, rhs[0, 0, 0, 0], threads=3)
    check(dispatcher, lhs, rhs[:, :, :, :, :1, :1, :1, :1, :1, :1], threads=3)


@given(data=st.data())
@settings(max_examples=150, deadline=None)
def test_random_strides(data: st.DataObject, random_dispatcher: _native.Dispatcher) -> None:
    """Any strides at all: a right product, or a refusal where neither dimension is contiguous.

    The layout of the addend is never in the way, since it is copied if need be.
    """
    m, n, k = (data.draw(st.integers(0, 4)) for _ in range(3))
    batch = tuple(data.draw(st.lists(st.integers(0, 3), max_size=3)))

    def operand(rows: int, columns: int, seed: int) -> Array:
        own = tuple(1 if data.draw(st.booleans()) else extent for extent in batch)
        shape = (*own[data.draw(st.integers(0, len(own))) :], rows, columns)
        return of_any_strides(shape, seed)

    def of_any_strides(shape: tuple[int, ...], seed: int) -> Array:
        strides = tuple(data.draw(st.sampled_from((0, 1, 1, 2, 4, 5, 40))) for _ in shape)
        return with_strides(shape, strides, seed)

    lhs, rhs = operand(m, k, 1), operand(k, n, 2)
    lhs_fits = k <= 1 or m <= 1 or 4 in lhs.strides[-2:]
    rhs_fits = k <= 1 or n <= 1 or 4 in rhs.strides[-2:]
    threads = data.draw(st.integers(1, 3))
    matrices = math.prod(np.broadcast_shapes(lhs.shape[:-2], rhs.shape[:-2]))
    result = (*np.broadcast_shapes(lhs.shape[:-2], rhs.shape[:-2]), m, n)
    addend = None
    if data.draw(st.booleans()):
        own = tuple(1 if data.draw(st.booleans()) else extent for extent in result)
        addend = of_any_strides(own[data.draw(st.integers(0, len(own))) :], 3)
    scale = data.draw(st.sampled_from((1.0, -0.5, 3.0)))
    if m * n * matrices == 0 or (lhs_fits and rhs_fits):
        out, _ = random_dispatcher.matmul(lhs, rhs, threads=threads, addend=addend, scale=scale)
        oracle.check_matmul(out, lhs, rhs, addend=addend, scale=scale)
    else:
        with pytest.raises(LookupError, match=r"layout$"):
            random_dispatcher.matmul(lhs, rhs, threads=threads, addend=addend)


@pytest.fixture(scope="module")
def random_dispatcher(pack: Any) -> _native.Dispatcher:
    """One for all examples of a test with Hypothesis."""
    dispatcher = _native.Dispatcher()
    dispatcher.load_pack(pack)
    return dispatcher


@pytest.mark.parametrize("case", cases.MISMATCHES, ids=str)
def test_mismatched_shapes_are_named(dispatcher: _native.Dispatcher, case: Case) -> None:
    lhs, rhs = (np.asarray(operand) for operand in case.operands())
    lhs = oracle.transpose(lhs) if case.adj_x else lhs
    rhs = oracle.transpose(rhs) if case.adj_y else rhs
    with pytest.raises(ValueError, match="shape") as error:
        dispatcher.matmul(lhs, rhs)
    assert str(lhs.shape) in str(error.value) or str(rhs.shape) in str(error.value)


def test_wrong_arguments(dispatcher: _native.Dispatcher) -> None:
    lhs, rhs = random_array(3, 5), random_array(5, 4)
    accepted = "float32, float16, bfloat16 or float64"
    with pytest.raises(TypeError, match=f"lhs: expected a numpy.ndarray of {accepted}, got list"):
        dispatcher.matmul([[1.0]], rhs)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="scale"):
        dispatcher.matmul(lhs, rhs, scale="2")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="threads: expected 1 or more, got 0"):
        dispatcher.matmul(lhs, rhs, threads=0)
    with pytest.raises(ValueError, match="kernel: expected 'auto' or 'generic', got 'fast'"):
        dispatcher.matmul(lhs, rhs, kernel="fast")
    with pytest.raises(ValueError, match="m, n and k: expected all integers, or all None"):
        dispatcher.find(1, None, 3)
    with pytest.raises(ValueError, match="lhs: 'x' is not"):
        dispatcher.find(1, 2, 3, lhs="x")


def test_no_kernel(tmp_path: Any) -> None:
    lhs, rhs = random_array(3, 5), random_array(5, 4)
    dispatcher = _native.Dispatcher()
    with pytest.raises(LookupError, match=r"no kernel serves .*: no_kernel$"):
        dispatcher.matmul(lhs, rhs)
    # Nothing is computed for a result without elements, so nothing is needed.
    out, kernel = dispatcher.matmul(lhs[:0], rhs)
    assert out.shape == (0, 4)
    assert kernel is None
    dispatcher.load_pack(write_pack(tmp_path, {V3: [FakeKernel((3, 4, 5)), GENERIC[3]]}))
    check(dispatcher, lhs, rhs)
    with pytest.raises(LookupError, match=r"no_kernel$"):
        dispatcher.matmul(lhs[:2], rhs)
    with pytest.raises(LookupError, match=r"no_kernel$"):
        dispatcher.matmul(lhs, rhs, kernel="generic")
