"""The rule for ``rhs`` contiguous in N: schedules/cpu_broadcast.py."""

from __future__ import annotations

import pytest

from tf_tvm_ops.kernels import ahead, build
from tf_tvm_ops.kernels.build import Kernel
from tf_tvm_ops.kernels.problem import Problem
from tf_tvm_ops.kernels.schedules import choose
from tf_tvm_ops.kernels.schedules.cpu_broadcast import (
    BroadcastConfig,
    CpuBroadcast,
    Run,
    divide,
    tile_space,
)
from tf_tvm_ops.kernels.targets import TARGETS

RULE = CpuBroadcast()


@pytest.mark.parametrize("lhs", ["k", "m"])
def test_results(check_rule, lhs):
    extents = [
        *((1, 1, 1), (1, 17, 128), (17, 17, 64), (5, 3, 2)),
        *((7, 9, 1), (33, 130, 5)),
    ]
    check_rule(RULE, [Problem(m, n, k, lhs, "n") for m, n, k in extents])


def test_refuses_what_it_cannot_do(target):
    assert RULE.refusal(Problem(1, 2, 3, rhs="k"), target) == "rhs not contiguous in n"
    assert RULE.refusal(Problem(None, None, None), target) == "extents not fixed"
    with pytest.raises(ValueError, match="does not apply"):
        RULE.propose(Problem(1, 2, 3, rhs="k"), target)


@pytest.mark.parametrize("most", [1, 5, 14])
def test_divide_covers_evenly(most):
    for extent in range(1, 70):
        runs = divide(extent, most)
        position = 0
        for run in runs:
            assert run.start == position
            assert run.size <= most
            position += run.size * run.count
        assert position == extent
        assert max(r.size for r in runs) - min(r.size for r in runs) <= 1


def test_divide_keeps_17_rows_balanced():
    assert divide(17, 14) == [Run(0, 9, 1), Run(9, 8, 1)]


def test_every_tile_fits_the_registers():
    for target in TARGETS.values():
        for config in tile_space(40, 100, target, target.lanes("float32")):
            assert config.registers() <= target.vector_registers
            assert config.unroll % config.k_split == 0


@pytest.mark.parametrize("knobs", [(0, 1), (1, 0), (1, 1, 0), (1, 1, 2, 3)])
def test_config_is_validated(knobs):
    with pytest.raises(ValueError, match="BroadcastConfig"):
        BroadcastConfig(*knobs)


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        (Problem(128, 128, 64), True),
        (Problem(128, 64, 128), False),
        (Problem(17, 64, 17), False),
        (Problem(None, None, None), True),
    ],
    ids=str,
)
def test_large_addends_are_asked_for_early(wanted, expected, monkeypatch):
    monkeypatch.setattr(ahead, "lead", lambda problem: 0)  # nor any operands
    target = TARGETS["cpu:x86-64-v3"]
    code = build.assembly(Kernel(wanted, choose(wanted, target), target))
    assert ("prefetcht0" in code) == expected
