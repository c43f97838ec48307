"""Operands that end where readable memory ends: a kernel that reads past them ends the process."""

from __future__ import annotations

import json

import pytest

from ..cases import Case, listed
from .processes import run_python

_CODE = """
import ctypes, json, mmap, sys
import numpy as np
import tensorflow as tf
from tf_tvm_ops import batch_matmul

libc = ctypes.CDLL(None, use_errno=True)
kept = []


def guarded(x, at_end):
    # The page before and the page after cannot be read.
    page = mmap.PAGESIZE
    pages = -(-max(x.nbytes, 1) // page)
    memory = mmap.mmap(-1, (pages + 2) * page)
    whole = np.frombuffer(memory, np.uint8)
    start = page + (pages * page - x.nbytes if at_end else 0)
    view = whole[start : start + x.nbytes].view(np.float32).reshape(x.shape)
    view[...] = x
    for guard in (0, pages + 1):
        address = ctypes.c_void_p(whole.ctypes.data + guard * page)
        assert libc.mprotect(address, ctypes.c_size_t(page), 0) == 0
    kept.append(memory)
    return tf.experimental.dlpack.from_dlpack(view.__dlpack__())


for lhs, rhs, adj_x, adj_y in json.loads(CASES):
    rng = np.random.default_rng(0)
    a, b = (rng.random(shape, dtype=np.float32) for shape in (lhs, rhs))
    want = np.matmul(
        (a.swapaxes(-1, -2) if adj_x else a).astype(np.float64),
        b.swapaxes(-1, -2) if adj_y else b,
    )
    for at_end in (False, True):
        print(lhs, rhs, adj_x, adj_y, at_end, file=sys.stderr, flush=True)
        got = batch_matmul(guarded(a, at_end), guarded(b, at_end), adj_x, adj_y)
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)
print(len(kept))
"""


@pytest.mark.parametrize("fallback", ["generic", "stock"])
def test_nothing_is_read_outside_the_operands(fallback: str) -> None:
    cases: list[Case] = [case for case in listed() if 0 not in (*case.lhs, *case.rhs)]
    described = json.dumps([(c.lhs, c.rhs, c.adj_x, c.adj_y) for c in cases])
    done = run_python(f"CASES = {described!r}\n{_CODE}", TF_TVM_OPS_FALLBACK=fallback)
    assert done.returncode == 0, done.stderr.strip().splitlines()[-1]
    assert int(done.stdout) == 4 * len(cases)
