"""The check before a manifest catches what kernels can do wrong: kernels/verify.py."""

from __future__ import annotations

import dataclasses
import faulthandler
import os
import signal

import pytest
from tvm import tirx

from tf_tvm_ops.kernels.compute import ADD_NOTHING, Matrix
from tf_tvm_ops.kernels.problem import Problem
from tf_tvm_ops.kernels.schedules import Choice
from tf_tvm_ops.kernels.schedules.cpu_broadcast import BroadcastConfig, CpuBroadcast
from tf_tvm_ops.kernels.schedules.cpu_dot import CpuDot, DotConfig
from tf_tvm_ops.kernels.targets import TARGETS

TARGET = TARGETS["cpu:x86-64-v3"]


def broken(rule, **changes):
    """The rule, believing in other extents than the problem has."""

    class Broken(type(rule)):
        def emit(self, matrix: Matrix, target, config) -> None:
            super().emit(dataclasses.replace(matrix, **changes), target, config)

    return Broken()


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({}, ""),
        ({"k": 9}, "results wrong"),
        ({"k": 11}, "results wrong"),
        ({"m": 4}, "results wrong"),
        ({"n": 6}, "results wrong"),
        ({"n": 8}, "wrote outside its rows"),
        ({"scale": tirx.FloatImm("float32", 1.0)}, "results wrong"),
        ({"addend_kind": tirx.IntImm("int64", ADD_NOTHING)}, "results wrong"),
        ({"addend_stride": tirx.IntImm("int64", 0)}, "results wrong"),
        ({"lhs_offset": tirx.IntImm("int64", 0)}, "results wrong"),
        ({"out_offset": tirx.IntImm("int64", 0)}, "results wrong"),
    ],
    ids=str,
)
def test_broadcast_kernel_with_wrong_extents(faults, changes, fault):
    problem = Problem(5, 7, 10)
    choice = Choice(broken(CpuBroadcast(), **changes), BroadcastConfig(5, 1))
    (found,) = faults([(problem, choice, TARGET)])
    assert fault in found
    assert bool(found) == bool(fault)


def test_reading_past_a_row_leaks_nan(faults):
    """A dot product over whole vectors would take the gap behind a row of K = 5 for zeros."""
    choice = Choice(broken(CpuDot(), k=8), DotConfig(1, 1))
    (found,) = faults([(Problem(1, 1, 5, rhs="k"), choice, TARGET)])
    assert "results wrong" in found


def test_reading_behind_the_operands_ends_the_process(faults):
    """Rows beyond the last one are read, but no result depends on them."""

    class ReadsOn(CpuBroadcast):
        def emit(self, matrix: Matrix, target, config) -> None:
            behind = matrix.lhs.load(matrix.lhs_index(matrix.m, 0), 1)
            never = tirx.const(1e30, "float32")
            scale = matrix.scale + tirx.Select(behind > never, never, tirx.const(0.0, "float32"))
            super().emit(dataclasses.replace(matrix, scale=scale), target, config)

    choice = Choice(ReadsOn(), BroadcastConfig(5, 1))
    child = os.fork()
    if child == 0:
        faulthandler.disable()
        faults([(Problem(5, 7, 10), choice, TARGET)])
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status)
    assert os.WTERMSIG(status) == signal.SIGSEGV


def test_missing_symbol(faults, tmp_path):
    from tf_tvm_ops.kernels.verify import missing_symbols, verify_image

    problem = Problem(1, 1, 1)
    assert faults([(problem, Choice(CpuBroadcast(), BroadcastConfig(1, 1)), TARGET)]) == [""]
    missing = ["symbol missing from the image"]
    image = tmp_path / "image0.so"
    assert verify_image(image, [("bmm_other", problem, 0)]) == missing
    present = Choice(CpuBroadcast(), BroadcastConfig(1, 1)).symbol(problem)
    assert missing_symbols(image, [present, "bmm_other"]) == ["", *missing]
