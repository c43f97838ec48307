"""Tensor cores: schedules/cuda_mma.py."""

from __future__ import annotations

import pytest

from tests.tvm.cuda.conftest import NEW, OLD, candidate, edited, emulate
from tf_tvm_ops.kernels.problem import Problem
from tf_tvm_ops.kernels.schedules.cuda_mma import CudaMma, MmaConfig

RULE = CudaMma()


def test_results(check_rule):
    check_rule(
        RULE,
        [
            Problem(17, 33, 65, "k", "n", "float16"),
            Problem(17, 33, 65, "m", "k", "bfloat16"),
            Problem(2, 1, 1, "m", "k", "float16"),
            Problem(32, 40, 48, "k", "k", "bfloat16"),
            Problem(24, 8, 16, "m", "n", "float16"),
        ],
    )


@pytest.mark.parametrize("extents", [(128, 128, 128), (33, 65, 100)])
def test_every_tile_of_a_warp(extents):
    """Instructions along M and N, one and several, whole and in part; in all four layouts."""
    kernels = {}
    tiles = [(1, 1, 16), (2, 3, 32), (4, 2, 64), (1, 8, 32)]
    layouts = [("k", "k"), ("k", "n"), ("m", "k"), ("m", "n")]
    for (tile_m, tile_n, tile_k), (lhs, rhs) in zip(tiles, layouts):
        problem = Problem(*extents, lhs, rhs, "bfloat16")
        given = candidate(problem, RULE, MmaConfig(2, 2, tile_m, tile_n, tile_k))
        kernels[given.symbol] = given
    assert emulate(list(kernels.values()), sanitize=False) == {}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("load_fragments_4(", "load_fragments_4_transposed("),
        ("(lane % 8)", "0"),
    ],
)
def test_wrong_fragments_are_caught(old, new):
    problem = Problem(64, 64, 32, "k", "k", "float16")
    given = candidate(problem, RULE, MmaConfig(1, 1, 2, 2, 32))
    (fault,) = emulate([edited(given, **{old: new})], sanitize=False).values()
    assert "results wrong" in fault


def test_refuses_what_it_cannot_do():
    problem = Problem(16, 16, 16, dtype="float16")
    assert RULE.refusal(problem, NEW) is None
    assert RULE.refusal(problem, OLD) == "target without mma.m16n8k16"
    assert RULE.refusal(Problem(16, 16, 16), NEW) == "dtype not of 16 bits"
    assert RULE.refusal(Problem(1, 16, 16, dtype="float16"), NEW) == "m is 1"
    assert RULE.refusal(Problem(None, None, None, dtype="float16"), NEW) == "extents not fixed"


@pytest.mark.parametrize("knobs", [(1, 1, 0, 1, 16), (1, 1, 1, 1, 8), (8, 8, 1, 1, 16)])
def test_config_is_validated(knobs):
    with pytest.raises(ValueError, match=r"expected|at least 1"):
        MmaConfig(*knobs)
