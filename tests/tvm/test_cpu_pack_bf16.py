"""The rules that multiply bfloat16 in pairs: schedules/cpu_pack_bf16.py, cpu_dot_bf16.py."""

from __future__ import annotations

import pytest

from tf_tvm_ops.kernels import build
from tf_tvm_ops.kernels.build import Kernel
from tf_tvm_ops.kernels.problem import Problem
from tf_tvm_ops.kernels.schedules import Choice, choose
from tf_tvm_ops.kernels.schedules.cpu_dot_bf16 import CpuDotBf16
from tf_tvm_ops.kernels.schedules.cpu_pack_bf16 import CpuPackBf16
from tf_tvm_ops.kernels.targets import TARGETS

BF16 = TARGETS["cpu:x86-64-v4-bf16"]


def problem(m, n, k, rhs, lhs="k", dtype="bfloat16"):
    return Problem(m, n, k, lhs, rhs, dtype)


@pytest.mark.parametrize(
    ("rule", "rhs"),
    [(CpuDotBf16(), "k"), (CpuPackBf16(), "k"), (CpuPackBf16(), "n")],
    ids=lambda value: getattr(value, "name", value),
)
def test_instruction_is_in_the_code(rule, rhs):
    """Compiled for the target everywhere, run where the CPU has it."""
    wanted = problem(17, 33, 70, rhs)
    kernel = Kernel(wanted, Choice(rule, rule.propose(wanted, BF16)), BF16)
    code = build.assembly(kernel)
    assert code.count("vdpbf16ps") > 10
    assert "vfmadd" not in code


def test_results(faults):
    if not BF16.runs_here():
        pytest.skip("this CPU has no AVX512-BF16: its kernels are made on machines that do")
    kernels = []
    for m, n, k in [(1, 17, 128), (17, 17, 64), (5, 33, 70), (30, 40, 2), (2, 3, 7), (1, 1, 1)]:
        for rhs in "nk":
            wanted = problem(m, n, k, rhs)
            for rule in (CpuDotBf16(), CpuPackBf16()):
                if rule.refusal(wanted, BF16) is None:
                    kernels.append((wanted, Choice(rule, rule.propose(wanted, BF16)), BF16))
    assert len({(choice.rule.name, p.rhs) for p, choice, _ in kernels}) == 3
    assert faults(kernels) == [""] * len(kernels)


@pytest.mark.parametrize(
    ("wanted", "target", "reason"),
    [
        (problem(4, 32, 8, "n", dtype="float16"), BF16, "dtype not bfloat16"),
        (problem(4, 32, 8, "n"), TARGETS["cpu:x86-64-v4"], "target without bfloat16 products"),
        (problem(4, 32, 7, "n"), BF16, "k odd"),
        (problem(4, 15, 8, "n"), BF16, "n less than a vector"),
        (problem(4, 32, 8, "n", lhs="m"), BF16, "lhs not contiguous in k"),
        (Problem(None, None, None, dtype="bfloat16"), BF16, "extents not fixed"),
    ],
    ids=str,
)
def test_refuses_what_it_cannot_do(wanted, target, reason):
    assert CpuPackBf16().refusal(wanted, target) == reason


def test_is_chosen_where_it_applies():
    assert choose(problem(128, 128, 64, "k"), BF16).rule.name == "cpu_pack_bf16"
    assert choose(problem(1, 17, 128, "k"), BF16).rule.name == "cpu_dot_bf16"
