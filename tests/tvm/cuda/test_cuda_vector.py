"""A vector times a matrix on a GPU: schedules/cuda_vector.py."""

from __future__ import annotations

import pytest

from tests.tvm.cuda.conftest import NEW, candidate, emulate
from tf_tvm_ops.kernels.problem import Problem
from tf_tvm_ops.kernels.schedules.cuda_rules import candidates
from tf_tvm_ops.kernels.schedules.cuda_vector import CudaVector, VectorConfig

RULE = CudaVector()


def test_results(check_rule):
    check_rule(
        RULE,
        [
            Problem(1, 17, 128, rhs="k"),
            Problem(1, 17, 128),
            Problem(1, 64, 17),
            Problem(1, 1, 1),
            Problem(1, 3, 33, rhs="k", dtype="float16"),
            Problem(1, 5, 24, rhs="k", dtype="bfloat16"),
            Problem(1, 72, 5, dtype="float16"),
            Problem(1, 9, 10, rhs="k", dtype="float64"),
            Problem(1, 6, 30, dtype="float64"),
        ],
    )


@pytest.mark.parametrize("problem", [Problem(1, 7, 12, rhs="k"), Problem(1, 12, 7)], ids=str)
def test_every_knob(problem):
    """Each value of each knob, with the smallest others."""
    kernels = {}
    space = list(RULE.space(problem, NEW))
    for knob in space[0].to_json():
        values = {}
        for config in space:
            values.setdefault(getattr(config, knob), config)
        for config in values.values():
            given = candidate(problem, RULE, config)
            kernels[given.symbol] = given
    assert emulate(list(kernels.values()), sanitize=False) == {}


def test_serves_decoding():
    for problem in (Problem(1, 17, 128, rhs="k"), Problem(1, 64, 17)):
        assert next(candidates(problem, NEW)).rule.name == "cuda_vector"


def test_refuses_what_it_cannot_do():
    assert RULE.refusal(Problem(2, 2, 3), NEW) == "m above 1"
    assert RULE.refusal(Problem(None, None, None), NEW) == "extents not fixed"


@pytest.mark.parametrize("knobs", [(8, 8, 0, 1, 1), (3, 8, 1, 1, 1), (128, 32, 1, 1, 1)])
def test_config_is_validated(knobs):
    with pytest.raises(ValueError, match="expected"):
        VectorConfig(*knobs)
