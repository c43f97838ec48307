"""The rule for operands both contiguous in K: schedules/cpu_dot.py."""

from __future__ import annotations

import pytest

from tf_tvm_ops.kernels.problem import Problem
from tf_tvm_ops.kernels.schedules.cpu_dot import CpuDot, DotConfig, Run, pieces

RULE = CpuDot()


def test_results(check_rule):
    extents = [
        *((1, 1, 1), (1, 17, 128), (17, 17, 64), (5, 3, 2), (4, 4, 16)),
        *((2, 7, 33), (7, 9, 1), (9, 1, 100)),
    ]
    check_rule(RULE, [Problem(m, n, k, "k", "k") for m, n, k in extents])


def test_refuses_what_it_cannot_do(target):
    assert RULE.refusal(Problem(1, 2, 3, rhs="n"), target) == "rhs not contiguous in k"
    assert RULE.refusal(Problem(2, 2, 3, lhs="m", rhs="k"), target) == "lhs not contiguous in k"
    assert RULE.refusal(Problem(None, None, None, rhs="k"), target) == "extents not fixed"


@pytest.mark.parametrize("whole", [1, 2, 4, 8, 16])
def test_pieces_cover(whole):
    for extent in range(1, 40):
        covered = set()
        for run in pieces(extent, whole):
            assert run.size <= whole
            for i in range(run.count):
                start = run.start + i * run.size
                assert start >= 0
                assert start + run.size <= extent
                covered.update(range(start, start + run.size))
        assert covered == set(range(extent))


def test_pieces_of_an_odd_length():
    assert pieces(17, 16) == [Run(0, 16, 1), Run(16, 1, 1)]
    assert pieces(7, 4) == [Run(0, 4, 1), Run(3, 4, 1)]


@pytest.mark.parametrize("knobs", [(0, 1), (3, 1), (1, 6)])
def test_config_is_validated(knobs):
    with pytest.raises(ValueError, match="power of two"):
        DotConfig(*knobs)
