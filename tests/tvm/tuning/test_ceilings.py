"""What one core can do at best: that the loops do what they are timed for, and what follows."""

from __future__ import annotations

import ctypes
import os
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tf_tvm_ops.kernels import build
from tf_tvm_ops.kernels.problem import DTYPES, Problem
from tf_tvm_ops.kernels.schedules import choose
from tf_tvm_ops.kernels.targets import TARGETS, Target
from tf_tvm_ops.kernels.tuning import ceilings
from tf_tvm_ops.kernels.tuning.backend import CpuBackend
from tf_tvm_ops.kernels.tuning.ceilings import Level
from tf_tvm_ops.kernels.tuning.local import LocalMeasurer
from tf_tvm_ops.kernels.tuning.measurer import Group
from tf_tvm_ops.kernels.tuning.workload import COLD, Workload

from ..conftest import RUNNABLE
from .fake_tuning import CEILINGS

SQUARE = Problem(64, 64, 64)
KINDS = [
    (target, kind)
    for target in RUNNABLE
    for kind in ("float32", "float64", *["bfloat16"] * target.multiplies_bfloat16)
]


def test_intensity_follows_from_the_definition() -> None:
    assert ceilings.matrix_bytes(SQUARE) == 3 * 64 * 64 * 4
    assert ceilings.intensity(SQUARE) == 2 * 64**3 / (3 * 64 * 64 * 4)
    assert ceilings.matrix_bytes(Problem(1, 17, 128, dtype="bfloat16")) == 2 * (128 + 2176 + 17)


@pytest.mark.parametrize(
    ("workload", "level"),
    [
        # 8 KiB a matrix: 512 + 1024 + 512 elements.
        (Workload(Problem(16, 32, 32), 1), "L1d"),
        (Workload(Problem(16, 32, 32), 4), "L1d"),
        (Workload(Problem(16, 32, 32), 5), "L2"),
        (Workload(Problem(16, 32, 32), 129), "L3"),
        (Workload(Problem(16, 32, 32), 1 << 20), "memory"),
        (Workload(Problem(16, 32, 32), 1, COLD), "memory"),
    ],
)
def test_where_operands_are(workload: Workload, level: str) -> None:
    assert CEILINGS.level(workload).name == level


def test_the_lower_ceiling_binds() -> None:
    assert CEILINGS.of(Workload(SQUARE, 512)) == 100.0
    thin = Problem(1, 64, 64)  # 0.49 operations a byte
    assert CEILINGS.of(Workload(thin, 1)) == pytest.approx(200 * ceilings.intensity(thin))
    assert CEILINGS.of(Workload(thin, 1, COLD)) == pytest.approx(10 * ceilings.intensity(thin))
    unknown = ceilings.Ceilings({"float32": 1.0}, CEILINGS.levels)
    assert unknown.of(Workload(Problem(4, 4, 4, dtype="float64"), 1)) is None


def test_no_level_is_slower_than_one_farther_out() -> None:
    levels = [Level("L1d", 1, 90.0), Level("L2", 2, 70.0), Level("L3", 3, 80.0)]
    levels.append(Level("memory", None, 20.0))
    found = [level.gigabytes_per_second for level in ceilings.consistent(levels)]
    assert found == [90.0, 80.0, 80.0, 20.0]


def pointer(array: np.ndarray) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)


def aligned(count: int, fill: float) -> np.ndarray:
    memory = np.empty(count + 16, np.float32)
    start = -memory.ctypes.data % 64 // 4
    memory[:] = fill
    return memory[start : start + count]


def run(target: Target, function: object, symbol: str, *arguments: object) -> None:
    build.compile_module(function, symbol, target).get_function(symbol)(*arguments)


@pytest.mark.parametrize(("target", "kind"), KINDS, ids=str)
def test_every_multiply_add_is_done(target: Target, kind: str) -> None:
    operands = aligned(64, 0.0)
    count = target.vector_registers // 2 + 4
    dtype = np.float64 if kind == "float64" else np.float32
    if kind == "bfloat16":
        operands.view(np.uint16)[:] = 0x3F00  # 0.5
    else:
        operands.view(dtype)[:] = 0.5
    out = aligned(16 * count, np.nan).view(dtype)
    function = ceilings.fma_function(target, kind)
    run(target, function, "ceiling_fma", pointer(operands), pointer(out), 12)
    lanes = target.lanes(kind)
    got = out[: count * lanes].reshape(count, lanes)
    each = 0.5 if kind == "bfloat16" else 0.25
    np.testing.assert_array_equal(got, np.arange(count)[:, None] + np.full(lanes, 12 * each))


@pytest.mark.parametrize(("target", "kind"), KINDS, ids=str)
def test_multiply_adds_stay_on_registers(target: Target, kind: str) -> None:
    module = build.compile_module(ceilings.fma_function(target, kind), "ceiling_fma", target)
    assembly = str(module.inspect_source("asm"))
    lines = re.findall(r"^.*(?:vfmadd|vdpbf16).*$", assembly, re.M)
    assert len(lines) >= target.vector_registers // 2 + 4
    assert not [line for line in lines if "(" in line]  # no operand in memory


@pytest.mark.parametrize("target", RUNNABLE, ids=str)
def test_every_vector_is_loaded_in_every_pass(target: Target) -> None:
    lanes, steps, passes = target.lanes("float32"), 5, 3
    memory = aligned(8 * lanes * steps, 0.0)
    memory[:] = np.arange(memory.size) % (8 * lanes)
    out = aligned(8 * lanes, np.nan)
    function = ceilings.load_function(target)
    run(target, function, "ceiling_load", pointer(memory), pointer(out), steps, passes)
    np.testing.assert_array_equal(out, steps * passes * np.arange(8 * lanes, dtype=np.float32))


def test_ceilings_of_this_machine(
    tmp_path: Path, local: LocalMeasurer, make_group: Callable[..., Group]
) -> None:
    target = RUNNABLE[0]
    cores = os.sched_getaffinity(0)
    for _ in range(5):  # what else the machine does can hide an order once
        found = ceilings.measure(target)
        rates = [level.gigabytes_per_second for level in found.levels]
        if rates == sorted(rates, reverse=True):
            break
    assert rates == sorted(rates, reverse=True)
    assert os.sched_getaffinity(0) == cores
    assert set(found.gflops) == set(DTYPES)
    assert found.gflops["float16"] == found.gflops["float32"] > found.gflops["float64"]
    assert rates[0] > rates[-1] > 0
    assert found.levels[-1].bytes is None
    # A kernel reaches a good part of what the machine can do, and not more: this is far from
    # either, so that no disturbance decides.
    backend = CpuBackend(target, tmp_path)
    group = make_group(backend, Workload(SQUARE, 2), [choose(SQUARE, target)])
    ((_, [time]),) = local.measure([group])
    assert time.ok, time
    gflops = 2e-3 * 2 * 64**3 / time.median_us
    assert gflops < 1.1 * found.gflops["float32"]
    assert gflops > 0.05 * found.gflops["float32"]


def test_a_target_that_does_not_run_here_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Target, "runs_here", lambda self: False)
    with pytest.raises(ValueError, match="cpu:x86-64-v3: this machine cannot run it"):
        ceilings.measure(TARGETS["cpu:x86-64-v3"])
