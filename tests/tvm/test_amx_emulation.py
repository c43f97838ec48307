"""The emulated tile instructions against the manual's pseudocode: schedules/amx_emulation.py."""

from __future__ import annotations

import ctypes
import ctypes.util
import faulthandler
import os
import signal
from contextlib import contextmanager

import numpy as np
import pytest
import tvm_ffi

from tf_tvm_ops.kernels import build
from tf_tvm_ops.kernels.build import Kernel
from tf_tvm_ops.kernels.problem import Problem
from tf_tvm_ops.kernels.schedules import Choice
from tf_tvm_ops.kernels.schedules.amx import Tiles
from tf_tvm_ops.kernels.schedules.cpu_amx import AmxConfig, CpuAmx
from tf_tvm_ops.kernels.targets import TARGETS

TARGET = {
    "bfloat16": TARGETS["cpu:x86-64-v4-amx-bf16"].emulation(),
    "float16": TARGETS["cpu:x86-64-v4-amx-fp16"].emulation(),
}
LEAST_NORMAL = np.float32(2.0**-126)

libm = ctypes.CDLL(ctypes.util.find_library("m"))
libm.fmaf.restype = ctypes.c_float
libm.fmaf.argtypes = [ctypes.c_float] * 3


class OneProduct(CpuAmx):
    """A tile product and nothing else: addend + lhs * rhs, all laid out as tiles have it."""

    def __init__(self, layout=None, release_first=False):
        self.layout = layout
        self.release_first = release_first

    def tiles(self, problem, target):
        layout = self.layout

        class Configured(Tiles):
            def configuration(self):
                return layout or super().configuration()

        return Configured(1, 1, problem.m, problem.dtype, target.emulated)

    @contextmanager
    def around(self, problem, target, config):
        tiles = self.tiles(problem, target)
        with tiles.configured():
            if self.release_first:
                tiles._call("release")
            yield

    def workspace_bytes(self, problem, target, config):
        return 0

    def emit(self, matrix, target, config):
        tiles = self.tiles(matrix.problem, target)
        tiles.load(tiles.sums(0, 0), matrix.addend, 0, 64)
        tiles.load(tiles.lhs(0), matrix.lhs, 0, 64)
        tiles.load(tiles.rhs(0), matrix.rhs, 0, 64)
        tiles.dot(0, 0)
        tiles.store(tiles.sums(0, 0), matrix.out, 0, 64)


def function(folder, problem, rule):
    kernel = Kernel(problem, Choice(rule, AmxConfig(1, 1)), TARGET[problem.dtype])
    build.compile_object(kernel, folder / "kernel.o")
    build.link_image([folder / "kernel.o"], folder / "image.so")
    return tvm_ffi.load_module(str(folder / "image.so")).get_function(kernel.symbol)


def call(function, a, b, c):
    """Sums of 16 x 16, NaN where the product left them alone."""
    out = np.full((16, 16), np.nan, np.float32)
    pointers = [ctypes.c_void_p(x.ctypes.data) for x in (a, b, c, out)]
    function(*pointers, ctypes.c_void_p(None), 0, 1, 1, *[0] * 13, 1.0)
    return out


def elements(dtype, rng, small):
    """16 x 32, special ones among them, as bits of 16; of small size where ``small`` holds."""
    if dtype == "float16":
        bits = rng.integers(0, 1 << 16, (16, 32)).astype(np.uint16)
        few = rng.random(bits.shape) < 0.97  # not so many NaN and infinities that all becomes NaN
        return np.where(few & (bits & 0x7C00 == 0x7C00), bits & 0x83FF, bits)
    sizes = 2.0 ** (rng.integers(-3, 4, (16, 32)) - 64 * small)
    values = rng.standard_normal((16, 32)) * sizes
    special = rng.choice([0.0, -0.0, 2.0**-130, -(2.0**-127), np.inf, np.nan, 2.0**-126], 16 * 32)
    chosen = np.where(rng.random((16, 32)) < 0.01, special.reshape(16, 32), values)
    return (chosen.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)


def decoded(bits, dtype):
    if dtype == "float16":
        return bits.view(np.float16).astype(np.float32)
    return flushed((bits.astype(np.uint32) << 16).view(np.float32))


def flushed(x):
    return np.where(np.abs(x) < LEAST_NORMAL, np.copysign(np.float32(0), x), x).astype(np.float32)


def product(a, b, c, dtype):
    """As the manual has it, element by element."""
    fmaf = np.vectorize(libm.fmaf, otypes=[np.float32])
    a, b = decoded(a, dtype), decoded(b, dtype)
    halves = []
    for half in range(2):
        total = np.zeros((len(a), 16), np.float32)
        for k in range(len(b)):
            left, right = a[:, 2 * k + half, None], b[k, half::2][None]
            with np.errstate(all="ignore"):
                total = flushed(fmaf(*np.broadcast_arrays(left, right), total))
        halves.append(total)
    with np.errstate(all="ignore"):
        return flushed(flushed(c) + flushed(halves[0] + halves[1]))


@pytest.mark.parametrize("dtype", TARGET)
@pytest.mark.parametrize("rows", [16, 5])
def test_product(tmp_path, dtype, rows):
    compute = function(tmp_path, Problem(rows, 16, 32, dtype=dtype), OneProduct())
    rng = np.random.default_rng(7)
    exact = np.zeros(2, int)
    for _ in range(5):
        # Where a row meets a column of small ones, all terms are about the least normal number.
        small_rows, small_columns = rng.random((16, 1)) < 0.5, np.repeat(rng.random(16) < 0.5, 2)
        a, b = elements(dtype, rng, small_rows), elements(dtype, rng, small_columns)
        sizes = np.where(small_rows & small_columns[::2], 2.0**-126, 1) * 2.0 ** rng.integers(-3, 4)
        c = (rng.standard_normal((16, 16)) * sizes).astype(np.float32)
        got = call(compute, a, b, c)
        expected = product(a[:rows], b, c[:rows], dtype)
        same = got[:rows].view(np.uint32) == expected.view(np.uint32)
        same |= np.isnan(got[:rows]) & np.isnan(expected)
        assert same.all()
        assert np.isnan(got[rows:]).all(), "wrote a row that is not configured"
        exact += [np.isfinite(expected).sum(), (~np.isfinite(expected)).sum()]
    assert exact.min() > 0, "nothing special, or nothing else"


def layout(**changes):
    """The configuration of a product of 16 x 16 x 32, with bytes changed."""
    given = bytearray(Tiles(1, 1, 16, "bfloat16").configuration())
    for name, value in changes.items():
        given[int(name.removeprefix("byte"))] = value
    return bytes(given)


@pytest.mark.parametrize(
    "rule",
    [
        OneProduct(layout(byte0=0)),  # palette
        OneProduct(layout(byte50=0)),  # no rows of rhs
        OneProduct(layout(byte50=15)),  # rows of rhs unlike pairs in lhs
        OneProduct(layout(byte49=15)),  # rows of lhs unlike those of the sums
        OneProduct(layout(byte20=60)),  # columns of rhs unlike those of the sums
        OneProduct(layout(byte18=62)),  # half a pair
        OneProduct(release_first=True),
    ],
    ids=["palette", "absent", "k", "m", "n", "pair", "released"],
)
def test_traps_where_the_cpu_does(tmp_path, rule):
    compute = function(tmp_path, Problem(16, 16, 32, dtype="bfloat16"), rule)
    zeros = np.zeros((16, 16), np.float32)
    child = os.fork()
    if child == 0:
        faulthandler.disable()
        call(compute, zeros, zeros, zeros)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status)
    assert os.WTERMSIG(status) == signal.SIGILL
