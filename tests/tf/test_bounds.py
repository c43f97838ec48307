"""Operands that end where readable memory ends: a kernel that reads past them ends the process."""

from __future__ import annotations

from pathlib import Path

import pytest

from .processes import run_with_tensorflow

ROOT = Path(__file__).parents[2]

_CODE = """
import ctypes, mmap, sys
import numpy as np
import tensorflow as tf
import tf_tvm_ops
sys.path.append(ROOT)
from tests.cases import in_dtypes, listed, listed_family
from tests.tf import family

libc = ctypes.CDLL(None, use_errno=True)
kept = []


def guarded(x, at_end):
    # The page before and the page after cannot be read.
    page = mmap.PAGESIZE
    pages = -(-max(x.nbytes, 1) // page)
    memory = mmap.mmap(-1, (pages + 2) * page)
    whole = np.frombuffer(memory, np.uint8)
    start = page + (pages * page - x.nbytes if at_end else 0)
    view = whole[start : start + x.nbytes].view(x.dtype).reshape(x.shape)
    view[...] = x
    for guard in (0, pages + 1):
        address = ctypes.c_void_p(whole.ctypes.data + guard * page)
        assert libc.mprotect(address, ctypes.c_size_t(page), 0) == 0
    kept.append(memory)
    tensor = family.borrowed(view)
    assert family.address(tensor) == view.ctypes.data
    return tensor


count = 0
for case in listed() + in_dtypes(listed_family()):
    lhs, rhs = case.operands()
    addend = case.random_addend()
    arrays = [x for x in (lhs, rhs, addend) if x is not None]
    if any(x.size == 0 for x in arrays):
        continue
    for at_end in (False, True):
        print(case, at_end, file=sys.stderr, flush=True)
        tensors = [guarded(x, at_end) for x in arrays]
        family.check(case, family.compute(case, *tensors), *arrays)
        if family.has_transpose(case):
            got = family.compute_transposed(case, *tensors)
            family.check_transposed(case, got, lhs, rhs)
        kept.clear()
        count += 1
print(count)
"""


@pytest.mark.parametrize("fallback", ["generic", "stock"])
def test_nothing_is_read_outside_the_operands(fallback: str) -> None:
    done = run_with_tensorflow(f"ROOT = {str(ROOT)!r}\n{_CODE}", TF_TVM_OPS_FALLBACK=fallback)
    assert done.returncode == 0, done.stderr.strip().splitlines()[-1]
    assert int(done.stdout) > 1000
