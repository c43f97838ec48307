"""Small products on a GPU: schedules/cuda_small.py."""

from __future__ import annotations

import itertools

import pytest

from tests.tvm.cuda.conftest import NEW, OLD, candidate, emulate
from tf_tvm_ops.kernels.problem import Problem
from tf_tvm_ops.kernels.schedules.cuda_small import CudaSmall, SmallConfig

RULE = CudaSmall()


def test_results(check_rule):
    check_rule(
        RULE,
        [
            Problem(17, 17, 64, rhs="k"),
            Problem(17, 64, 17),
            Problem(7, 5, 33, "m", "k"),
            Problem(5, 12, 8, "m", "n", "float64"),
            Problem(13, 9, 64, rhs="k", dtype="float16"),
            Problem(9, 32, 11, dtype="bfloat16"),
            Problem(1, 1, 1),
        ],
    )


def test_every_knob():
    """Each value of each knob, in the four layouts in turn."""
    kernels = {}
    layouts = itertools.cycle((("k", "k"), ("k", "n"), ("m", "k"), ("m", "n")))
    for target in (OLD, NEW):
        space = list(RULE.space(Problem(12, 8, 36), target))
        for knob in space[0].to_json():
            for value in sorted({getattr(config, knob) for config in space}):
                problem = Problem(12, 8, 36, *next(layouts))
                fitting = (c for c in space if RULE.fits(problem, c))
                config = next(c for c in fitting if getattr(c, knob) == value)
                given = candidate(problem, RULE, config)
                kernels[given.symbol] = given
    assert len(kernels) > 20
    assert emulate(list(kernels.values()), sanitize=False) == {}


def test_refuses_what_it_cannot_do():
    assert RULE.refusal(Problem(None, None, None), NEW) == "extents not fixed"
    assert RULE.refusal(Problem(3, 65, 8), NEW) == "m or n above 64"


@pytest.mark.parametrize("knobs", [(0, 1, 1, 8, 1, 0), (1, 0, 1, 8, 1, 0), (1, 1, 1, 9, 4, 0)])
def test_config_is_validated(knobs):
    with pytest.raises(ValueError, match=r"expected|at least 1"):
        SmallConfig(*knobs)
