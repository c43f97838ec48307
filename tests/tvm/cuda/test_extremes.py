"""What sizes and values at the edge must not break, on the emulator."""

from __future__ import annotations

import ctypes
import mmap

import numpy as np
import pytest

from tests.tvm.cuda.conftest import NEW, OLD, call, candidate, load
from tf_tvm_ops.kernels.cuda import source
from tf_tvm_ops.kernels.cuda.function import kernel_function
from tf_tvm_ops.kernels.emulate.check import Candidate
from tf_tvm_ops.kernels.problem import Problem
from tf_tvm_ops.kernels.schedules.cuda_generic import CudaGeneric
from tf_tvm_ops.kernels.schedules.cuda_mma import CudaMma
from tf_tvm_ops.kernels.schedules.cuda_rules import CUDA_RULES
from tf_tvm_ops.kernels.schedules.cuda_small import CudaSmall, SmallConfig
from tf_tvm_ops.kernels.schedules.cuda_thread import CudaThread, ThreadConfig

BEYOND = 2**31 + 3  # elements
MAP_NORESERVE = 0x4000  # of Linux; mmap names it from Python 3.13 on


def best(problem, rule, target=NEW):
    space = rule.space(problem, target)
    return candidate(problem, rule, min(space, key=lambda c: rule.cost(problem, target, c)))


class Sparse:
    """Memory of far more elements than are touched."""

    def __init__(self, elements: int) -> None:
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | MAP_NORESERVE
        self._memory = mmap.mmap(-1, 4 * elements, flags=flags)
        self.values = np.frombuffer(self._memory, np.float32)

    @property
    def address(self) -> int:
        return self.values.ctypes.data


def serving(problem):
    return [rule for rule in CUDA_RULES if rule.refusal(problem, NEW) is None]


FIXED = [Problem(2, 3, 5), Problem(1, 3, 5), Problem(17, 16, 5)]


@pytest.mark.parametrize(
    ("problem", "rule"),
    [
        *((p, rule) for p in FIXED for rule in serving(p)),
        (Problem(None, None, None), CudaGeneric()),
    ],
    ids=lambda value: getattr(value, "name", str(value)),
)
def test_offsets_past_two_to_the_thirty_first(problem, rule, tmp_path):
    """Rows of out, rows of rhs and matrices of lhs that far apart."""
    m, n, k = (2, 3, 5) if problem.is_generic else problem.extents()
    rng = np.random.default_rng()
    lhs, rhs, out = Sparse(BEYOND + m * k), Sparse(5 * BEYOND + n), Sparse(18 * BEYOND + n)
    a = rng.standard_normal((2, m, k), np.float32)
    b = rng.standard_normal((k, n), np.float32)
    for i in range(2):
        lhs.values[i * BEYOND : i * BEYOND + m * k] = a[i].reshape(-1)
    for i in range(k):
        rhs.values[i * BEYOND : i * BEYOND + n] = b[i]
    call(
        load(best(problem, rule), tmp_path),
        *(lhs.address, rhs.address, out.address),
        total=2,
        strides={"lhs": (BEYOND, 0, k), "rhs": (0, 0, BEYOND), "out": (n, 0, BEYOND)},
        extents=(m, n, k) if problem.is_generic else (),
    )
    for i in range(m):
        found = out.values[i * BEYOND : i * BEYOND + 2 * n].reshape(2, n)
        np.testing.assert_allclose(found, a[:, i] @ b, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("count", [65535, 65536, 131072])
def test_more_matrices_than_a_grid_has_along_y(count, tmp_path):
    given = candidate(Problem(1, 1, 1), CudaSmall(), SmallConfig(8, 1, 1, 1, 1, 0))
    ones = np.ones(count, np.float32)
    out = np.full(count, np.nan, np.float32)
    one = (1, 0, 1)
    call(
        load(given, tmp_path),
        *(ones.ctypes.data, ones.ctypes.data, out.ctypes.data),
        total=count,
        strides={"lhs": one, "rhs": one, "out": one},
    )
    assert out.sum() == count


@pytest.mark.parametrize("limit", [1, 2, 3, 5, 8])
def test_grids_beyond_the_limit_are_launched_in_parts(limit, tmp_path):
    """Six matrices of two tiles."""
    rule, config = CudaThread(), ThreadConfig(1, 32, 1)
    problem = Problem(2, 5, 7)
    symbol = f"bmm_grid_{limit}"
    function = kernel_function(
        problem,
        symbol,
        lambda m, n, k: rule.grid(m, n, k, config),
        lambda block: rule.emit(block, config),
        max_grid=limit,
    )
    lowered = source.lower(function, tmp_path)
    given = Candidate(symbol, problem, lowered.cuda, lowered.host)
    rng = np.random.default_rng()
    a = rng.standard_normal((6, 2, 7)).astype(np.float32)
    b = rng.standard_normal((6, 7, 5)).astype(np.float32)
    out = np.full((6, 2, 5), np.nan, np.float32)
    call(
        load(given, tmp_path),
        *(a.ctypes.data, b.ctypes.data, out.ctypes.data),
        total=6,
        strides={"lhs": (14, 0, 7), "rhs": (35, 0, 5), "out": (10, 0, 5)},
    )
    np.testing.assert_allclose(out, a @ b, rtol=1e-5, atol=1e-5)
    device = ctypes.CDLL(str(tmp_path / f"{symbol}_device.so"))
    most = ctypes.c_int64.in_dll(device, "emulate_most_blocks").value
    assert most == max(2, limit // 2 * 2), "a matrix is not divided"


def test_matrix_of_too_many_tiles_is_an_error(tmp_path):
    function = load(best(Problem(None, None, None), CudaGeneric()), tmp_path)
    zero = (0, 0, 0)
    with pytest.raises(RuntimeError, match="more than 2147483647 tiles"):
        call(
            function,
            *(None, None, None),
            strides={"lhs": zero, "rhs": zero, "out": zero},
            extents=(2**28, 2**28, 1),
        )


def test_empty_products(tmp_path):
    """No rows, no columns, no matrices: nothing is launched, as CUDA would refuse to."""
    function = load(best(Problem(None, None, None), CudaGeneric()), tmp_path)
    zero = (0, 0, 0)
    for total, extents in ((1, (0, 3, 4)), (1, (3, 0, 4)), (0, (3, 3, 4))):
        call(
            function,
            *(None, None, None),
            total=total,
            strides={"lhs": zero, "rhs": zero, "out": zero},
            extents=extents,
        )


NARROW = Problem(33, 17, 33, dtype="float16")


@pytest.mark.parametrize(
    ("problem", "rule", "target"),
    [
        *((NARROW, rule, NEW) for rule in serving(NARROW)),
        *((Problem(33, 17, 33), rule, NEW) for rule in serving(Problem(33, 17, 33))),
        (Problem(33, 17, 33), CudaThread(), OLD),
        (Problem(None, None, None), CudaGeneric(), NEW),
        (Problem(None, None, None), CudaGeneric(), OLD),
    ],
    ids=lambda value: getattr(value, "name", str(value)),
)
def test_nan_stays_in_its_row_and_column(problem, rule, target, tmp_path):
    """Rows of lhs but the first are NaN, and the last column of rhs is: K is no whole vector."""
    m, n, k = 33, 17, 33
    dtype = np.dtype(problem.dtype)
    rng = np.random.default_rng()
    lhs = rng.standard_normal((m, k)).astype(dtype)
    rhs = rng.standard_normal((k, n)).astype(dtype)
    lhs[1:] = np.nan
    rhs[:, -1] = np.nan
    out = np.zeros((m, n), dtype)
    call(
        load(best(problem, rule, target), tmp_path),
        *(lhs.ctypes.data, rhs.ctypes.data, out.ctypes.data),
        strides={"lhs": (0, 0, k), "rhs": (0, 0, n), "out": (0, 0, n)},
        extents=(m, n, k) if problem.is_generic else (),
    )
    expected = lhs.astype(np.float64) @ rhs.astype(np.float64)
    assert np.isfinite(expected[0, :-1]).all()
    np.testing.assert_allclose(out.astype(np.float64), expected, rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize("rule", [CudaMma(), CudaSmall(), CudaThread()], ids=lambda r: r.name)
def test_sums_of_halves_are_of_single_precision(rule, tmp_path):
    """Two times 4096 ones, exact in float32, where halves alone would stop at 2048."""
    problem = Problem(2, 1, 4096, dtype="float16")
    ones = np.ones((2, 4096), np.float16)
    out = np.zeros(2, np.float16)
    call(
        load(best(problem, rule), tmp_path),
        *(ones.ctypes.data, ones.ctypes.data, out.ctypes.data),
        strides={"lhs": (0, 0, 4096), "rhs": (0, 0, 1), "out": (0, 0, 1)},
    )
    assert out.tolist() == [4096.0, 4096.0]
