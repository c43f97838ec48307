"""The baseline, a thread for each output: schedules/cuda_thread.py."""

from __future__ import annotations

import pytest

from tests.tvm.cuda.conftest import NEW
from tf_tvm_ops.kernels.problem import Problem
from tf_tvm_ops.kernels.schedules.cuda_thread import CudaThread, ThreadConfig

RULE = CudaThread()


def test_results(check_rule):
    check_rule(
        RULE,
        [
            Problem(1, 1, 1),
            Problem(1, 17, 128, rhs="k"),
            Problem(9, 33, 5, "m", "n", "float64"),
            Problem(17, 17, 64, "k", "k", "float16"),
            Problem(3, 70, 7, "m", "k", "bfloat16"),
        ],
    )


def test_the_reports_block_is_a_candidate():
    assert ThreadConfig(8, 32, 1) in RULE.space(Problem(17, 17, 64), NEW)


def test_refuses_generic_problems():
    assert RULE.refusal(Problem(None, None, None), NEW) == "extents not fixed"


@pytest.mark.parametrize("knobs", [(3, 32, 1), (1, 8, 1), (64, 32, 1), (1, 32, 0)])
def test_config_is_validated(knobs):
    with pytest.raises(ValueError, match="expected"):
        ThreadConfig(*knobs)
