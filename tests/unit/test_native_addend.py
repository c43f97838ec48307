"""Scale and addend: their way through Plan of cc/dispatch/product.cc, and empty sums."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests import oracle
from tf_tvm_ops import _native

from .arrays import Array, check, random_array, with_strides
from .fake_packs import ARGUMENTS, DTYPES, GENERIC, V3, FakeKernel, write_pack

MATRIX, COLUMN = 1, 2
INFINITY, NAN = float("inf"), float("nan")


@pytest.fixture(scope="module")
def describer(tmp_path_factory: pytest.TempPathFactory) -> _native.Dispatcher:
    """One whose kernels fail with their arguments."""
    kernels = [FakeKernel(k.extents, k.lhs, k.rhs, behaviour="describe") for k in GENERIC]
    dispatcher = _native.Dispatcher()
    dispatcher.load_pack(write_pack(tmp_path_factory.mktemp("pack"), {V3: kernels}))
    return dispatcher


def arguments(
    describer: _native.Dispatcher, lhs: Array, rhs: Array, **options: Any
) -> dict[str, float]:
    """The arguments of the first call of a kernel, by name."""
    with pytest.raises(RuntimeError, match="ValueError: ") as error:
        describer.matmul(lhs, rhs, **options)
    values = str(error.value).split("ValueError: ")[1].split()
    assert len(values) == len(ARGUMENTS)
    return dict(zip(ARGUMENTS, map(float, values)))


# The shape and strides of an addend to a result of [3, n], and what kernels are told of it.
KINDS = [
    pytest.param(4, (3, 4), (4, 1), MATRIX, 4, id="row-major"),
    pytest.param(4, (3, 4), (9, 1), MATRIX, 9, id="gaps"),
    pytest.param(4, (3, 4), (1, 1), MATRIX, 1, id="sliding-window"),
    pytest.param(4, (3, 4), (0, 1), MATRIX, 0, id="rows-all-the-same"),
    pytest.param(4, (1, 4), (7, 1), MATRIX, 0, id="one-row"),
    pytest.param(4, (4,), (1,), MATRIX, 0, id="vector"),
    pytest.param(4, (3, 1), (5, 1), COLUMN, 5, id="one-column"),
    pytest.param(4, (3, 1), (5, 9), COLUMN, 5, id="one-column-strided"),
    pytest.param(4, (3, 4), (5, 0), COLUMN, 5, id="columns-all-the-same"),
    pytest.param(4, (1, 1), (5, 5), COLUMN, 0, id="one-value"),
    pytest.param(4, (), (), COLUMN, 0, id="scalar"),
    pytest.param(1, (3, 1), (5, 1), MATRIX, 5, id="n=1"),
    pytest.param(1, (3, 1), (5, 9), MATRIX, 5, id="n=1-strided"),
    pytest.param(1, (3, 1), (1, 0), MATRIX, 1, id="n=1-column-stride-0"),
    pytest.param(1, (1, 1), (5, 1), MATRIX, 0, id="n=1-one-row"),
    pytest.param(1, (), (), MATRIX, 0, id="n=1-scalar"),
    pytest.param(4, (3, 4), (1, 3), MATRIX, 4, id="copied-column-major"),
    pytest.param(4, (3, 4), (8, 2), MATRIX, 4, id="copied-every-second-column"),
    pytest.param(4, (4,), (2,), MATRIX, 0, id="copied-every-second-element"),
]


@pytest.mark.parametrize(("n", "shape", "strides", "kind", "stride"), KINDS)
def test_kinds(
    describer: _native.Dispatcher,
    dispatcher: _native.Dispatcher,
    n: int,
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    kind: int,
    stride: int,
) -> None:
    lhs, rhs = random_array(2, 3, 5), random_array(2, 5, n, seed=1)
    addend = with_strides(shape, strides, seed=2)
    told = arguments(describer, lhs, rhs, addend=addend)
    assert (told["addend_kind"], told["addend_stride"]) == (kind, stride)
    check(dispatcher, lhs, rhs, addend=addend)
    check(dispatcher, lhs, rhs, addend=addend, kernel="generic", scale=-0.5, threads=2)
    check(dispatcher, lhs[..., :0], rhs[:, :0], addend=addend, scale=-0.5)


def test_one_row_of_results(describer: _native.Dispatcher, dispatcher: _native.Dispatcher) -> None:
    lhs, rhs = random_array(2, 1, 5), random_array(2, 5, 4, seed=1)
    for shape, kind in (((1, 4), MATRIX), ((2, 1, 4), MATRIX), ((2, 1, 1), COLUMN)):
        addend = random_array(*shape, seed=2)
        assert arguments(describer, lhs, rhs, addend=addend)["addend_kind"] == kind
        check(dispatcher, lhs, rhs, addend=addend)


def test_no_addend(describer: _native.Dispatcher) -> None:
    told = arguments(describer, random_array(6, 3, 5), random_array(6, 5, 4), addend=None)
    assert {told[name] for name in ARGUMENTS if name.startswith("addend_")} == {0}
    assert told["scale"] == 1


@pytest.mark.parametrize(
    "view",
    [
        pytest.param(lambda o: o[::-1, ::-1], id="backwards"),
        pytest.param(lambda o: o.swapaxes(0, 1).copy().swapaxes(0, 1), id="column-major"),
        pytest.param(lambda o: o.astype([("x", "<f4"), ("y", "u1")])["x"], id="part-of-elements"),
        pytest.param(
            lambda o: np.frombuffer(b"?" + o.tobytes(), "<f4", offset=1).reshape(o.shape),
            id="unaligned",
        ),
    ],
)
def test_addend_that_is_copied(dispatcher: _native.Dispatcher, view: Any) -> None:
    lhs, rhs, addend = random_array(3, 5), random_array(5, 4), view(random_array(3, 4, seed=1))
    before = addend.tobytes()
    check(dispatcher, lhs, rhs, addend=addend)
    assert addend.tobytes() == before
    # It is not the addend's layout that is in the way here.
    with pytest.raises(LookupError, match=r"layout$"):
        dispatcher.matmul(random_array(3, 10)[:, ::2], rhs[:, ::-1], addend=addend)


# The batch of an addend to products of batch (2, 3), which merges to 6 but for the addend:
# batches, heads, strides of batch and heads.
BATCHES = [
    pytest.param((2, 3), 1, 12, 0, id="equal"),
    pytest.param((), 1, 0, 0, id="one-for-all"),
    pytest.param((1, 1), 1, 0, 0, id="ones"),
    pytest.param((2, 1), 3, 12, 0, id="one-for-the-inner"),
    pytest.param((1, 3), 3, 0, 12, id="one-for-the-outer"),
    pytest.param((3,), 3, 0, 12, id="no-outer"),
]


@pytest.mark.parametrize(("batch", "heads", "batch_stride", "head_stride"), BATCHES)
def test_addend_decides_what_merges(
    describer: _native.Dispatcher,
    dispatcher: _native.Dispatcher,
    batch: tuple[int, ...],
    heads: int,
    batch_stride: int,
    head_stride: int,
) -> None:
    lhs, rhs = random_array(2, 3, 3, 5), random_array(2, 3, 5, 4, seed=1)
    addend = random_array(*batch, 3, 4, seed=2)
    told = arguments(describer, lhs, rhs, addend=addend)
    assert (told["begin"], told["end"], told["heads"]) == (0, 6, heads)
    assert told["addend_batch_stride"] == batch_stride
    assert told["addend_head_stride"] == head_stride
    assert told["lhs_batch_stride"] == 15 * heads
    assert told["lhs_head_stride"] == (15 if heads > 1 else 0)
    for threads in (1, 2, 4):
        check(dispatcher, lhs, rhs, addend=addend, threads=threads)
        check(dispatcher, lhs[..., :0], rhs[..., :0, :], addend=addend, threads=threads)


@pytest.mark.parametrize("kind", [(3, 4), (1, 4), (3, 1), (1, 1)], ids=str)
@pytest.mark.parametrize("batch", [(2, 1, 2, 1), (1, 3, 1, 2), (3, 1, 2), (2, 3, 2, 2)], ids=str)
def test_outer_batches(
    dispatcher: _native.Dispatcher, batch: tuple[int, ...], kind: tuple[int, int]
) -> None:
    """More batches than a kernel counts through."""
    lhs, rhs = random_array(2, 3, 2, 2, 3, 5), random_array(2, 3, 2, 2, 5, 4, seed=1)
    addend = random_array(*batch, *kind, seed=2)
    for threads in (1, 3, 5):
        check(dispatcher, lhs, rhs, addend=addend, threads=threads)
        check(dispatcher, lhs[:, :, :1], rhs, addend=addend[..., ::-1, :], threads=threads)


def test_addend_with_more_batches_than_are_looped_over(dispatcher: _native.Dispatcher) -> None:
    lhs, rhs = random_array(*(2,) * 10, 1, 2), random_array(*(2,) * 10, 2, 1, seed=1)
    check(dispatcher, lhs, rhs, addend=random_array(*(2,) * 10, 1, 1))
    with pytest.raises(LookupError, match=r"rank$"):
        dispatcher.matmul(lhs, rhs, addend=random_array(*(2, 1) * 5, 1, 1))


@pytest.mark.parametrize("scale", [0.125, -2, 0.0, 0.1, np.float32(3), INFINITY, NAN], ids=str)
def test_scale(describer: _native.Dispatcher, dispatcher: _native.Dispatcher, scale: float) -> None:
    lhs, rhs, addend = random_array(2, 3, 5), random_array(2, 5, 4), random_array(4)
    np.testing.assert_equal(arguments(describer, lhs, rhs, scale=scale)["scale"], float(scale))
    check(dispatcher, lhs, rhs, scale=scale)
    check(dispatcher, lhs, rhs, scale=scale, addend=addend)


SPECIAL = [0.0, -0.0, 1.5, -2.0, INFINITY, -INFINITY, NAN, 2.0**-20]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("scale", [1.0, -1.0, 0.0, -0.0, 1e-60, 1e300, INFINITY, -INFINITY, NAN])
def test_empty_sum(dispatcher: _native.Dispatcher, dtype: str, scale: float) -> None:
    """Is ``scale * 0 + addend``, to the sign of zero, in the type that kernels compute in."""
    computed_in = np.float64 if dtype == "float64" else np.float32
    row = np.array(SPECIAL, np.float64).astype(dtype)
    lhs, rhs = np.zeros((2, 3, 0), dtype), np.zeros((0, len(row)), dtype)
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        zero = computed_in(scale) * computed_in(0)
        want = (zero + row.astype(computed_in)).astype(dtype)
    for addend in (None, row, row[:3, None], row[:6].reshape(2, 3, 1)):
        out, kernel = dispatcher.matmul(lhs, rhs, addend=addend, scale=scale)
        assert kernel is not None
        assert out.dtype == row.dtype
        if addend is None:
            expected = np.full(out.shape, zero).astype(dtype)
        elif addend.ndim == 1:
            expected = np.broadcast_to(want, out.shape)
        else:
            expected = np.broadcast_to(want[: addend.size].reshape(addend.shape), out.shape)
        nan = np.isnan(expected.astype(np.float64))
        assert np.isnan(out[nan].astype(np.float64)).all()
        assert out[~nan].tobytes() == expected[~nan].tobytes()


@pytest.mark.parametrize(("dtype", "bits"), [("float16", 0x7E00), ("bfloat16", 0x7FC0)])
def test_empty_sum_of_16_bits_that_is_nan(
    dispatcher: _native.Dispatcher, dtype: str, bits: int
) -> None:
    lhs, rhs = np.zeros((3, 0), dtype), np.zeros((0, 4), dtype)
    for addend in (None, np.ones(4, dtype)):
        out, _ = dispatcher.matmul(lhs, rhs, addend=addend, scale=NAN)
        assert set(out.view(np.uint16).ravel()) == {bits}


def test_empty_sum_leaves_gaps_alone(dispatcher: _native.Dispatcher) -> None:
    room = np.full((2, 3, 9), np.nan, np.float32)
    lhs, rhs = random_array(2, 3, 0), random_array(2, 0, 4)
    for addend in (random_array(4), random_array(3, 1), random_array(2, 3, 4)):
        out, _ = dispatcher.matmul(lhs, rhs, addend=addend, out=room[..., 2:6])
        np.testing.assert_array_equal(out, np.broadcast_to(addend, out.shape))
        assert np.isfinite(room).sum() == out.size


def test_addends_that_do_not_fit(dispatcher: _native.Dispatcher) -> None:
    lhs, rhs = random_array(2, 3, 5), random_array(5, 4)
    for shape in ((3,), (3, 2), (2, 4), (3, 3, 4), (1, 2, 3, 4), (2, 0, 4)):
        with pytest.raises(
            ValueError, match="cannot be broadcast to the shape of the res"
        ) as error:
            dispatcher.matmul(lhs, rhs, addend=random_array(*shape))
        assert f"addend of shape {shape} " in str(error.value)
        assert str(error.value).endswith(", (2, 3, 4)")
    with pytest.raises(TypeError, match="addend: expected dtype float32, that of lhs, got float64"):
        dispatcher.matmul(lhs, rhs, addend=np.ones(4))
    with pytest.raises(TypeError, match=r"addend: expected a numpy.ndarray of .*, got float"):
        dispatcher.matmul(lhs, rhs, addend=1.0)  # type: ignore[arg-type]
    # A result without elements is no reason not to look.
    with pytest.raises(ValueError, match=r"addend of shape \(3,\)"):
        dispatcher.matmul(lhs[:0], rhs, addend=random_array(3))
    out, kernel = dispatcher.matmul(lhs[:0], rhs, addend=random_array(1, 3, 4))
    assert (out.shape, kernel) == ((0, 3, 4), None)


def test_addend_and_workspace(tmp_path: Path) -> None:
    kernel = FakeKernel((2, 7, 3), dtype="float64", behaviour="scratch", workspace_bytes=56)
    dispatcher = _native.Dispatcher()
    dispatcher.load_pack(write_pack(tmp_path, {V3: [kernel]}))
    lhs, rhs = (random_array(*shape, dtype="float64") for shape in ((9, 2, 3), (9, 3, 7)))
    addend = random_array(9, 2, 1, dtype="float64")
    out, _ = dispatcher.matmul(lhs, rhs, addend=addend, scale=0.1, threads=4)
    oracle.check_matmul(out, lhs, rhs, addend=addend, scale=0.1)
