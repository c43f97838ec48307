"""What kernels/cuda/work.py counts, beside what the rules launch."""

from __future__ import annotations

import pytest

from tf_tvm_ops.kernels.cuda import work
from tf_tvm_ops.kernels.cuda.targets import CUDA_TARGETS
from tf_tvm_ops.kernels.problem import Problem
from tf_tvm_ops.kernels.schedules.cuda_rules import candidates


@pytest.mark.parametrize("target", ["cuda:sm_70", "cuda:sm_90"])
@pytest.mark.parametrize(
    "problem",
    [
        Problem(1, 17, 128, "k", "k"),
        Problem(1, 40, 17, dtype="float16"),
        Problem(17, 17, 63, "k", "k"),
        Problem(65, 130, 40, "m", "n", "bfloat16"),
        Problem(20, 33, 7, "m", "k", "float64"),
    ],
    ids=str,
)
def test_launches_are_those_of_the_rules(problem: Problem, target: str) -> None:
    m, n, k = problem.extents()
    rules = set()
    for choice in candidates(problem, CUDA_TARGETS[target]):
        grid = choice.rule.grid(m, n, k, choice.config)
        counted = work.of_config(problem, choice.to_json())
        assert counted.threads == grid.threads, choice
        assert counted.tiles_m * counted.tiles_n == grid.tiles, choice
        assert counted.matrices == grid.matrices, choice
        # Never less than what is needed, and a launch for no matrices is none.
        assert counted.flops(grid.matrices) >= 2 * grid.matrices * m * n * k, choice
        assert counted.blocks(0) == 0
        rules.add(choice.rule.name)
    assert len(rules) >= 2
