"""Run-time extents on a GPU: schedules/cuda_generic.py."""

from __future__ import annotations

import itertools

import pytest

from tests.tvm.cuda.conftest import NEW, OLD
from tf_tvm_ops.kernels.problem import DTYPES, LHS_CONTIGUOUS, RHS_CONTIGUOUS, Problem
from tf_tvm_ops.kernels.schedules.cuda_generic import CudaGeneric, CudaGenericConfig

RULE = CudaGeneric()


@pytest.mark.parametrize("dtype", DTYPES)
def test_results(check_rule, dtype):
    layouts = itertools.product(LHS_CONTIGUOUS, RHS_CONTIGUOUS)
    # What differs between the types is how elements are read and written.
    chosen = list(layouts) if dtype == "float32" else [("k", "k"), ("m", "n")]
    check_rule(RULE, [Problem(None, None, None, *layout, dtype) for layout in chosen])


def test_copies_past_registers_where_the_hardware_does():
    def copies(dtype, target):
        problem = Problem(None, None, None, dtype=dtype)
        return {config.copies_async for config in RULE.space(problem, target)}

    assert copies("float32", NEW) == {1}
    assert copies("float32", OLD) == {0}
    assert copies("float16", NEW) == {0}


def test_refuses_fixed_extents():
    assert RULE.refusal(Problem(1, 2, 3), NEW) == "extents fixed"


@pytest.mark.parametrize("knobs", [(40, 16, 4, 0), (64, 6, 4, 0), (64, 16, 3, 0), (64, 0, 1, 0)])
def test_config_is_validated(knobs):
    with pytest.raises(ValueError, match=r"expected|at least 1"):
        CudaGenericConfig(*knobs)
