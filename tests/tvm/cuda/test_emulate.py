"""The emulator catches what kernels can do wrong: kernels/emulate."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from tests.tvm.cuda.conftest import call, candidate, edited, emulate, load
from tf_tvm_ops.kernels.emulate.check import check
from tf_tvm_ops.kernels.problem import Problem
from tf_tvm_ops.kernels.schedules.cuda_generic import CudaGeneric, CudaGenericConfig
from tf_tvm_ops.kernels.schedules.cuda_mma import CudaMma, MmaConfig
from tf_tvm_ops.kernels.schedules.cuda_small import CudaSmall, SmallConfig
from tf_tvm_ops.kernels.schedules.cuda_thread import CudaThread, ThreadConfig
from tf_tvm_ops.kernels.schedules.cuda_tile import CudaTile, TileConfig
from tf_tvm_ops.kernels.schedules.cuda_vector import CudaVector, VectorConfig

PROBLEM = Problem(17, 19, 40)
GENERIC = Problem(None, None, None)


def tile(copies_async: int = 0):
    return candidate(GENERIC, CudaGeneric(), CudaGenericConfig(32, 16, 4, copies_async))


def fault(given, *, sanitize: bool = False) -> str:
    (found,) = check([given], sanitize=sanitize)
    return found


@pytest.mark.parametrize("copies_async", [0, 1])
def test_kernel_is_right(copies_async):
    assert fault(tile(copies_async), sanitize=True) == ""


@pytest.mark.parametrize("copies_async", [0, 1])
def test_every_barrier_is_needed(copies_async):
    """One by one and all together; in shared memory whose content is not there, NaN waits."""
    given = tile(copies_async)
    pieces = given.cuda.split("__syncthreads();")
    assert len(pieces) > 1
    without = ["".join(pieces)]
    for removed in range(len(pieces) - 1):
        left = ["" if i == removed else "__syncthreads();" for i in range(len(pieces) - 1)]
        without.append("".join(p + b for p, b in zip(pieces, [*left, ""])))
    for cuda in without:
        found = fault(edited(given, **{given.cuda: cuda}))
        assert "results wrong" in found


@pytest.mark.parametrize(
    ("problem", "rule", "config"),
    [
        (Problem(1, 12, 40), CudaVector(), VectorConfig(4, 8, 4, 1, 1)),
        (Problem(33, 20, 48, dtype="float16"), CudaMma(), MmaConfig(2, 1, 1, 2, 32)),
        (Problem(16, 20, 16, dtype="float16"), CudaMma(), MmaConfig(1, 1, 1, 2, 16)),
        (Problem(12, 8, 36), CudaSmall(), SmallConfig(4, 2, 2, 36, 4, 1)),
        (Problem(12, 8, 36), CudaSmall(), SmallConfig(4, 2, 2, 12, 4, 0)),
        (Problem(40, 40, 40), CudaTile(), TileConfig(8, 8, 2, 4, 16, 4, 1)),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_rules_without_barriers(problem, rule, config):
    given = candidate(problem, rule, config)
    assert fault(given) == ""
    assert "results wrong" in fault(edited(given, **{"__syncthreads();": ""}))


def test_barrier_that_part_of_a_block_reaches():
    found = fault(edited(tile(), **{"__syncthreads();": "if (threadIdx.x < 40) __syncthreads();"}))
    assert "divergent barrier" in found


def test_different_barriers_are_divergent():
    two = "if (threadIdx.x < 32) {\n __syncthreads();\n} else {\n __syncthreads();\n}"
    assert "divergent barrier" in fault(edited(tile(), **{"__syncthreads();": two}))


def test_missing_wait_for_copies():
    given = tile(copies_async=1)
    assert "results wrong" in fault(edited(given, **{"tvmop_copy_async_wait_0();": ""}))


def test_copies_into_a_buffer_in_use():
    """The next chunk overwrites the present one: seen when copies arrive at once."""
    found = fault(edited(tile(copies_async=1), **{"(1 - parity)": "parity"}))
    assert "results wrong" in found


def test_shared_memory_out_of_bounds():
    given = tile()
    size = re.search(r"lhs_shared_ptr\[(\d+)\];", given.cuda)
    assert size
    smaller = f"lhs_shared_ptr[{int(size[1]) - 5}];"  # rows end in four elements of padding
    found = fault(edited(given, **{size[0]: smaller}), sanitize=True)
    assert "AddressSanitizer: global-buffer-overflow" in found


def test_operand_out_of_bounds_is_seen_and_the_next_kernel_runs():
    config = ThreadConfig(8, 32, 1)
    bad = candidate(PROBLEM, CudaThread(), config)
    bad = edited(bad, **{"v < 40": "v < 41"})
    good = candidate(PROBLEM, CudaThread(), ThreadConfig(4, 32, 1))
    found = emulate([bad, good], sanitize=True)
    assert list(found) == [bad.symbol]
    assert "results wrong" in found[bad.symbol] or "AddressSanitizer" in found[bad.symbol]


def test_stray_read_of_an_operand():
    """Of what lies behind it, and without effect on the result: no access is allowed there."""
    given = candidate(PROBLEM, CudaThread(), ThreadConfig(8, 32, 1))
    matrices = 4  # of the layout without gaps
    stray = "volatile float stray = {}[{}]; sum_ptr[0] = 0x0p+0f"
    m, n, k = PROBLEM.extents()
    for index, size in (("_ptr_1", k * n), ("_ptr_2", m * k)):
        code = stray.format(index, matrices * size)
        found = fault(edited(given, **{"sum_ptr[0] = 0x0p+0f": code}))
        assert "ended the process that ran it" in found


def test_unaligned_vectors():
    """Rows of odd length, read sixteen bytes at once."""
    given = tile()
    blind = f"#define tvmop_is_aligned(...) true\n{given.cuda}"
    assert "misaligned read" in fault(edited(given, **{given.cuda: blind}))


def test_code_that_does_not_compile_is_one_line():
    from tf_tvm_ops.kernels.build import BuildError

    with pytest.raises(BuildError, match="failed to compile kernels for the emulator") as error:
        fault(edited(tile(), **{"__syncthreads();": "no_such_thing();"}))
    assert "\n" not in str(error.value)


def test_frame_that_is_too_large_ends_the_process():
    """It does not write into what another thread keeps on its stack."""
    deep = "if (threadIdx.x == 1) [] { volatile char large[252 << 10]; large[0] = 1; }();"
    found = fault(edited(tile(), **{"__syncthreads();": f"{deep}\n__syncthreads();"}))
    assert "ended the process that ran it" in found


def test_locals_are_nan_at_first(tmp_path):
    """In the only block of a launch, too, whose stacks nothing was on before."""
    problem = Problem(8, 32, 40)
    given = candidate(problem, CudaThread(), ThreadConfig(8, 32, 1))
    unset = "volatile float unset; sum_ptr[0] = unset"  # volatile: kept on the stack
    function = load(edited(given, **{"sum_ptr[0] = 0x0p+0f": unset}), tmp_path)
    out = multiply_ones(function, problem)
    assert np.isnan(out).all()


def multiply_ones(function, problem):
    """The product of one pair of matrices of ones."""
    m, n, k = problem.extents()
    lhs, rhs = np.ones((m, k), np.float32), np.ones((k, n), np.float32)
    out = np.zeros((m, n), np.float32)
    strides = {"lhs": (0, 0, k), "rhs": (0, 0, n), "out": (0, 0, n)}
    call(function, *(array.ctypes.data for array in (lhs, rhs, out)), strides=strides)
    return out


def mappings():
    return len(Path("/proc/self/maps").read_text().splitlines())


def test_launches_leave_no_mappings(tmp_path):
    """Where each kernel kept its guarded stacks, a process had mappings for 31 kernels."""
    given = candidate(PROBLEM, CudaThread(), ThreadConfig(8, 32, 1))
    function = load(given, tmp_path)
    before = mappings()
    assert (multiply_ones(function, PROBLEM) == PROBLEM.k).all()
    assert mappings() < before + 16


def test_kernel_that_does_not_end():
    endless = edited(tile(), **{"__syncthreads();": "for (;;) __syncthreads();"})
    good = candidate(PROBLEM, CudaThread(), ThreadConfig(4, 32, 1))
    found = check([endless, good], deadline=3.0)
    assert found == ["did not end before the deadline", ""]
