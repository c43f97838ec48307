"""Tiles load what they need, and keep no copies of operands on the stack: Matrix.reread."""

from __future__ import annotations

import re

import pytest

from tf_tvm_ops.kernels import build
from tf_tvm_ops.kernels.build import Kernel
from tf_tvm_ops.kernels.problem import Problem
from tf_tvm_ops.kernels.schedules import Choice
from tf_tvm_ops.kernels.schedules.cpu_broadcast import BroadcastConfig, CpuBroadcast
from tf_tvm_ops.kernels.schedules.cpu_dot import CpuDot, DotConfig
from tf_tvm_ops.kernels.schedules.cpu_dot_bf16 import CpuDotBf16
from tf_tvm_ops.kernels.schedules.cpu_pack import CpuPack
from tf_tvm_ops.kernels.schedules.cpu_pack_bf16 import CpuPackBf16
from tf_tvm_ops.kernels.targets import TARGETS

V3, V4, V4_BF16 = (TARGETS[f"cpu:x86-64-{level}"] for level in ("v3", "v4", "v4-bf16"))

VECTOR_ON_STACK = re.compile(r"[yz]mm\d+.*\(%rsp\)|\(%rsp\).*[yz]mm\d+")

MOST = 8
"""Vectors that change places with the stack: a tile that fills all registers may need a few."""

CASES = [
    # All of lhs, broadcast, for the next block of columns.
    (Problem(15, 64, 15), CpuBroadcast(), BroadcastConfig(8, 1, 1, 4), V4),
    (Problem(15, 64, 15, dtype="float16"), CpuBroadcast(), BroadcastConfig(8, 1, 1, 4), V4),
    # All of rhs, for the next tile of rows.
    (Problem(19, 128, 19), CpuBroadcast(), BroadcastConfig(1, 8, 1, 4), V4),
    (Problem(15, 32, 15), CpuBroadcast(), BroadcastConfig(3, 2, 1, 1), V3),
    (Problem(15, 15, 128, rhs="k"), CpuDot(), DotConfig(1, 8), V4),
    (Problem(31, 31, 128, rhs="k"), CpuDot(), DotConfig(1, 16), V4),
    (Problem(15, 15, 64, rhs="k"), CpuDot(), DotConfig(2, 2), V3),
    (Problem(15, 15, 128, rhs="k", dtype="bfloat16"), CpuDotBf16(), DotConfig(1, 8), V4_BF16),
    # What was packed just before.
    (Problem(1, 17, 32, rhs="k"), CpuPack(), BroadcastConfig(1, 2, 1, 4), V4),
    (Problem(12, 17, 32, rhs="k"), CpuPack(), BroadcastConfig(2, 2, 1, 4), V4),
    (
        *(Problem(12, 32, 32, rhs="k", dtype="bfloat16"), CpuPackBf16()),
        *(BroadcastConfig(4, 2, 1, 4), V4_BF16),
    ),
]


@pytest.mark.parametrize(
    ("problem", "rule", "config", "target"),
    CASES,
    ids=lambda value: getattr(value, "name", str(value)),
)
def test_operands_do_not_go_to_the_stack(problem, rule, config, target):
    lines = build.assembly(Kernel(problem, Choice(rule, config), target)).splitlines()
    assert any("fma" in line or "dpbf16" in line for line in lines)
    found = [line for line in lines if VECTOR_ON_STACK.search(line)]
    assert len(found) <= MOST, found[:4]


def test_what_fits_registers_stays_there():
    """Seven rows of rhs, three vectors each, are read once and not for each row of lhs."""
    problem, config = Problem(7, 48, 7), BroadcastConfig(1, 3, 1, 4)
    assembly = build.assembly(Kernel(problem, Choice(CpuBroadcast(), config), V4))
    blocks = [block for block in re.split(r"^\.LBB.*:", assembly, flags=re.M) if "vfmadd" in block]
    assert blocks
    for block in blocks:
        assert not re.search(r"(vmovup[sd]|vfmadd\w+)\s\S*\(\S+\), %zmm", block)


def test_what_fits_registers_stays_there_in_dot_tiles():
    """All of rhs, four columns of two vectors, is read once: each row reads its own two."""
    problem, config = Problem(12, 4, 32, rhs="k"), DotConfig(1, 4)
    assembly = build.assembly(Kernel(problem, Choice(CpuDot(), config), V4))
    (block,) = (b for b in re.split(r"^\.LBB.*:", assembly, flags=re.M) if "vfmadd" in b)
    assert len(re.findall(r"(?:vmovup[sd]|vfmadd\w+)\s\S*\(\S+\), %zmm", block)) == 2
