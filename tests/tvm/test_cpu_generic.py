"""The generic kernels, and the choice among all rules: schedules/cpu_generic.py, __init__.py."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tf_tvm_ops.kernels.problem import LHS_CONTIGUOUS, RHS_CONTIGUOUS, Problem
from tf_tvm_ops.kernels.schedules import CPU_RULES, choose
from tf_tvm_ops.kernels.schedules.cpu_generic import CpuGeneric
from tf_tvm_ops.kernels.targets import TARGETS

EXTENT = st.integers(1, 70)


def test_results(check_rule):
    layouts = [(lhs, rhs) for lhs in LHS_CONTIGUOUS for rhs in RHS_CONTIGUOUS]
    check_rule(CpuGeneric(), [Problem(None, None, None, *layout) for layout in layouts])


def test_closes_the_table(target):
    assert isinstance(CPU_RULES[-1], CpuGeneric)
    for lhs in LHS_CONTIGUOUS:
        for rhs in RHS_CONTIGUOUS:
            generic = choose(Problem(None, None, None, lhs, rhs), target)
            assert generic.rule.name == "cpu_generic"
            fixed = choose(Problem(17, 17, 64, lhs, rhs), target)
            assert fixed.rule.name != "cpu_generic"


@settings(
    max_examples=12,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    extents=st.lists(st.tuples(EXTENT, EXTENT, EXTENT), min_size=4, max_size=4, unique=True),
)
def test_any_problem_gets_a_right_kernel(faults, extents):
    layouts = [(lhs, rhs) for lhs in LHS_CONTIGUOUS for rhs in RHS_CONTIGUOUS]
    for target in (t for t in TARGETS.values() if t.runs_here()):
        problems = [Problem(*e, *layout) for e, layout in zip(extents, layouts)]
        found = faults([(p, choose(p, target), target) for p in problems])
        assert found == [""] * len(problems)


@pytest.mark.parametrize(
    ("extents", "rule"),
    [((1, 17, 64), "cpu_dot"), ((17, 17, 64), "cpu_dot"), ((128, 128, 64), "cpu_pack")],
)
def test_transposed_scores_take_the_cheaper_rule(extents, rule):
    target = TARGETS["cpu:x86-64-v4"]
    assert choose(Problem(*extents, rhs="k"), target).rule.name == rule
