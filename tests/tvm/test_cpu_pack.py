"""The rule that transposes ``rhs`` first: schedules/cpu_pack.py."""

from __future__ import annotations

import pytest

from tf_tvm_ops.kernels.problem import Problem
from tf_tvm_ops.kernels.schedules.cpu_broadcast import BroadcastConfig
from tf_tvm_ops.kernels.schedules.cpu_pack import CpuPack

RULE = CpuPack()


@pytest.mark.parametrize("lhs", ["k", "m"])
def test_results(check_rule, lhs):
    extents = [
        *((1, 1, 1), (17, 17, 64), (5, 3, 2), (2, 7, 33)),
        *((7, 9, 1), (33, 50, 5)),
    ]
    check_rule(RULE, [Problem(m, n, k, lhs, "k") for m, n, k in extents])


def test_refuses_what_it_cannot_do(target):
    assert RULE.refusal(Problem(1, 2, 3), target) == "rhs not contiguous in k"
    assert RULE.refusal(Problem(None, None, None, rhs="k"), target) == "extents not fixed"


def test_workspace_holds_one_block_of_columns(target):
    problem = Problem(20, 100, 7, rhs="k")
    lanes = target.lanes("float32")
    size = RULE.workspace_bytes(problem, target, BroadcastConfig(4, 2))
    assert size == -(-(7 * 2 * lanes * 4) // 64) * 64
