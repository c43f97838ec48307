"""Tiles of larger products on a GPU: schedules/cuda_tile.py."""

from __future__ import annotations

import pytest

from tests.tvm.cuda.conftest import NEW
from tf_tvm_ops.kernels.problem import Problem
from tf_tvm_ops.kernels.schedules.cuda_tile import CudaTile, TileConfig

RULE = CudaTile()


def test_results(check_rule):
    check_rule(
        RULE,
        [
            Problem(128, 128, 64, rhs="k"),
            Problem(128, 64, 128),
            Problem(65, 33, 70, "m", "k"),
            Problem(40, 70, 33, "m", "n", "float64"),
            Problem(67, 66, 40, rhs="k", dtype="float16"),
            Problem(66, 64, 20, "m", "n", "bfloat16"),
        ],
    )


def test_every_config_fits_the_limits():
    for config in RULE.space(Problem(384, 384, 64), NEW):
        shape = config.shape()
        assert shape.threads <= 1024
        assert RULE.shared_bytes(Problem(384, 384, 64), config) <= 48 << 10


def test_refuses_what_it_cannot_do():
    assert RULE.refusal(Problem(None, None, None), NEW) == "extents not fixed"
    assert RULE.refusal(Problem(15, 64, 8), NEW) == "m or n below 16"


@pytest.mark.parametrize("knobs", [(0, 8, 4, 4, 8, 4, 0), (64, 32, 1, 1, 8, 1, 0)])
def test_config_is_validated(knobs):
    with pytest.raises(ValueError, match=r"expected|at least 1"):
        TileConfig(*knobs)
