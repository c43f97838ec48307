"""The types of elements: their names, sizes and kernels."""

from __future__ import annotations

from itertools import permutations
from pathlib import Path

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest

from tf_tvm_ops import _native

from .arrays import check, random_array, with_strides
from .fake_packs import DTYPES, V3, generic_kernels, write_pack

ACCEPTED = "float32, float16, bfloat16 or float64"


@pytest.mark.parametrize("dtype", DTYPES)
def test_products(dispatcher: _native.Dispatcher, dtype: str) -> None:
    lhs, rhs = random_array(2, 3, 5, dtype=dtype), random_array(2, 5, 4, seed=1, dtype=dtype)
    addend = random_array(3, 1, seed=2, dtype=dtype)
    kernel = check(dispatcher, lhs, rhs)
    assert (kernel.dtype, kernel.m) == (dtype, 3)
    assert kernel.problem == f"{dtype} 3x4x5 lhs:k rhs:n"
    for threads in (1, 2):
        check(dispatcher, lhs, rhs, addend=addend, scale=0.3, threads=threads)
    other = check(dispatcher, lhs[:, ::2], rhs, addend=addend[::2])
    assert (other.dtype, other.is_generic) == (dtype, True)


@pytest.mark.parametrize("dtype", DTYPES)
def test_strides(dispatcher: _native.Dispatcher, dtype: str) -> None:
    """They are counted in elements, whatever their size."""
    lhs = with_strides((2, 3, 2, 3, 5), (99, 0, 50, 1, 9), seed=1, dtype=dtype)
    rhs = with_strides((3, 2, 5, 4), (60, 30, 1, 7), seed=2, dtype=dtype)
    addend = with_strides((2, 1, 1, 3, 4), (40, 0, 0, 11, 1), seed=3, dtype=dtype)
    room = np.full((2, 3, 2, 3, 6), np.nan).astype(dtype)
    kernel = check(dispatcher, lhs, rhs, addend=addend, out=room[..., 1:5], threads=3)
    assert (kernel.lhs, kernel.rhs) == ("m", "k")
    assert np.isfinite(room.astype(np.float64)).sum() == room[..., 1:5].size
    check(dispatcher, lhs[..., :0], rhs[:, :, :0], addend=addend, out=room[..., 1:5])
    assert np.isfinite(room.astype(np.float64)).sum() == room[..., 1:5].size
    check(dispatcher, lhs, rhs, addend=addend.swapaxes(-1, -2).copy().swapaxes(-1, -2))


@pytest.mark.parametrize("dtype", DTYPES)
def test_alignment(dispatcher: _native.Dispatcher, dtype: str) -> None:
    """An address must be a whole number of elements; half an element is too little."""
    lhs, rhs = random_array(3, 5, dtype=dtype), random_array(5, 4, dtype=dtype)
    half = lhs.itemsize // 2
    shifted = np.frombuffer(bytes(half) + lhs.tobytes(), dtype, offset=half).reshape(3, 5)
    assert shifted.ctypes.data % lhs.itemsize == half
    with pytest.raises(LookupError, match=f"serves {dtype} lhs .*: layout$"):
        dispatcher.matmul(shifted, rhs)
    check(dispatcher, lhs, rhs, addend=np.frombuffer(bytes(half * 9), dtype, 4, offset=half))
    # So must be the steps between elements.
    columns = np.lib.stride_tricks.as_strided(lhs, (3, 3), (5 * lhs.itemsize, 3 * half))
    with pytest.raises(LookupError, match=f"serves {dtype} lhs .*: layout$"):
        dispatcher.matmul(columns, rhs[:3])


def test_kernels_of_another_dtype_do_not_serve(tmp_path: Path) -> None:
    dispatcher = _native.Dispatcher()
    dispatcher.load_pack(write_pack(tmp_path, {V3: generic_kernels("float16")}))
    for dtype in DTYPES:
        lhs, rhs = random_array(3, 5, dtype=dtype), random_array(5, 4, dtype=dtype)
        if dtype == "float16":
            check(dispatcher, lhs, rhs)
            continue
        with pytest.raises(LookupError, match=f"no kernel serves {dtype} lhs .*: no_kernel$"):
            dispatcher.matmul(lhs, rhs)


@pytest.mark.parametrize(
    "dtype",
    [
        ">f4",
        ">f2",
        np.dtype(ml_dtypes.bfloat16).newbyteorder(">"),
        "longdouble",
        "complex64",
        "int8",
        "V2",
        ml_dtypes.float8_e5m2,
        [("bfloat16", "<f2")],
    ],
    ids=str,
)
def test_other_types_are_refused(dispatcher: _native.Dispatcher, dtype: npt.DTypeLike) -> None:
    lhs = np.zeros((3, 5), dtype)
    with pytest.raises(TypeError, match=rf"lhs: expected dtype {ACCEPTED}, got .*; convert it"):
        dispatcher.matmul(lhs, random_array(5, 4))
    with pytest.raises(TypeError, match="rhs: expected dtype float32, that of lhs, got "):
        dispatcher.matmul(random_array(4, 3), lhs)


@pytest.mark.parametrize(("dtype", "other"), list(permutations(DTYPES, 2)))
def test_types_are_not_mixed(dispatcher: _native.Dispatcher, dtype: str, other: str) -> None:
    lhs, rhs = random_array(3, 5, dtype=dtype), random_array(5, 4, dtype=dtype)
    expected = rf": expected dtype {dtype}, that of lhs, got {other}; .*astype\(lhs.dtype\)"
    with pytest.raises(TypeError, match="rhs" + expected):
        dispatcher.matmul(lhs, rhs.astype(other))
    with pytest.raises(TypeError, match="addend" + expected):
        dispatcher.matmul(lhs, rhs, addend=rhs[0].astype(other))
    with pytest.raises(TypeError, match="out" + expected):
        dispatcher.matmul(lhs, rhs, out=np.zeros((3, 4), other))


def test_unknown_name(dispatcher: _native.Dispatcher) -> None:
    for name in ("int8", "half", ""):
        with pytest.raises(ValueError, match=f"dtype: '{name}' is not a value of Problem"):
            dispatcher.find(3, 4, 5, dtype=name)
