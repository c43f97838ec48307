"""What kernels prefetch: kernels/ahead.py."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest
import tvm_ffi
from hypothesis import given
from hypothesis import strategies as st
from tvm import tirx
from tvm.tirx.script.builder import ir as T

from tf_tvm_ops.kernels import ahead, build
from tf_tvm_ops.kernels.build import Kernel
from tf_tvm_ops.kernels.compute import POINTERS
from tf_tvm_ops.kernels.elements import ADD_NOTHING
from tf_tvm_ops.kernels.problem import Problem
from tf_tvm_ops.kernels.schedules import Choice
from tf_tvm_ops.kernels.schedules.cpu_broadcast import BroadcastConfig, CpuBroadcast
from tf_tvm_ops.kernels.schedules.cpu_dot import CpuDot, DotConfig
from tf_tvm_ops.kernels.schedules.cpu_pack import CpuPack
from tf_tvm_ops.kernels.targets import TARGETS
from tf_tvm_ops.kernels.vectors import View

V3 = TARGETS["cpu:x86-64-v3"]
EXTENT = st.integers(1, 70)

CASES = [
    (Problem(33, 65, 40), CpuBroadcast(), BroadcastConfig(5, 2)),
    (Problem(33, 65, 40), CpuBroadcast(), BroadcastConfig(33, 1)),
    (Problem(40, 44, 40, lhs="m"), CpuBroadcast(), BroadcastConfig(3, 4)),
    (Problem(40, 43, 40, rhs="k"), CpuPack(), BroadcastConfig(6, 2)),
    (Problem(41, 35, 40, rhs="k"), CpuDot(), DotConfig(2, 4)),
]


def touched(problem, choice, folder, monkeypatch, *, matrices):
    """Elements of lhs and rhs of two matrices that one call asks for, for the first of them."""
    m, n, k = problem.extents()
    sizes = {"lhs": 2 * m * k, "rhs": 2 * k * n}

    def note(view: View, index) -> None:
        # The addend, which is not added, takes the notes: those of lhs, then those of rhs.
        behind = 0 if view.buffer is places["lhs"] else sizes["lhs"]
        T.buffer_store(places["addend"], tirx.FloatImm("float32", 1.0), [index + behind])

    places: dict[str, object] = {}
    made = View.__init__

    def remember(view: View, buffer, dtype) -> None:
        made(view, buffer, dtype)
        if len(places) < len(POINTERS):
            places[POINTERS[len(places)]] = buffer

    monkeypatch.setattr(View, "__init__", remember)
    monkeypatch.setattr(View, "prefetch", note)
    kernel = Kernel(problem, choice, V3)
    build.compile_object(kernel, folder / "kernel.o")
    build.link_image([folder / "kernel.o"], folder / "kernel.so")
    function = tvm_ffi.load_module(str(folder / "kernel.so")).get_function(kernel.symbol)
    lhs, rhs = (np.ones(size, np.float32) for size in sizes.values())
    notes = np.zeros(sum(sizes.values()), np.float32)
    out = np.zeros(2 * m * n, np.float32)
    workspace = np.zeros(kernel.workspace_bytes + 64, np.uint8)
    aligned = -(-workspace.ctypes.data // 64) * 64
    function(
        *(ctypes.c_void_p(x.ctypes.data) for x in (lhs, rhs, notes, out)),
        ctypes.c_void_p(aligned),
        *(0, matrices, 2),
        *(0, m * k, k if problem.lhs == "k" else m),
        *(0, k * n, n if problem.rhs == "n" else k),
        *(0, 0, 0, ADD_NOTHING),
        *(0, m * n, n),
        1.0,
    )
    assert (out[: matrices * m * n] == k).all()
    return np.split(notes.astype(bool), [sizes["lhs"]])


@pytest.mark.parametrize(
    ("problem", "rule", "config"), CASES, ids=lambda value: getattr(value, "name", str(value))
)
def test_every_line_of_the_next_matrix_is_asked_for(problem, rule, config, tmp_path, monkeypatch):
    monkeypatch.setattr(ahead, "FAR_BYTES", 1)
    assert ahead.lead(problem) == 1
    lhs, rhs = touched(problem, Choice(rule, config), tmp_path, monkeypatch, matrices=1)
    m, n, k = problem.extents()
    shapes = ((m, k) if problem.lhs == "k" else (k, m), (k, n) if problem.rhs == "n" else (n, k))
    for found, shape in zip((lhs, rhs), shapes):
        this, following = found.reshape(2, *shape)
        assert following[:, :: ahead.LINE_BYTES // 4].all()
        # Shares are whole rows: the last one may be of the matrix behind, never of the one at hand.
        assert not this.any()


def test_operands_that_stay_in_the_cache_are_not(tmp_path, monkeypatch):
    problem, rule, config = CASES[0]
    found = touched(problem, Choice(rule, config), tmp_path, monkeypatch, matrices=1)
    assert not np.concatenate(found).any()


def test_bounds():
    assert ahead.lead(Problem(1, 17, 64)) == 0  # a product that only reads
    assert ahead.lead(Problem(None, None, None)) == 0
    assert ahead.lead(Problem(128, 128, 64)) == 1
    # Small matrices: memory takes longer than one of them.
    assert ahead.lead(Problem(12, 12, 64)) == 2
    assert ahead.lead(Problem(12, 12, 64, dtype="float16")) == 3


@given(m=EXTENT, n=EXTENT, tile=st.integers(1, 16), extent=EXTENT)
def test_shares_leave_no_row_out(m, n, tile, extent):
    rows = set()
    for first in range(0, m * n, tile):
        start, share = ahead.share_of(extent, first, min(tile, m * n - first), m * n)
        rows |= set(range(start, start + share))
    assert rows >= set(range(extent))


@pytest.mark.parametrize("rule", [CpuBroadcast(), CpuPack(), CpuDot()], ids=lambda rule: rule.name)
def test_results(rule, check_rule, monkeypatch):
    monkeypatch.setattr(ahead, "FAR_BYTES", 1)
    rhs = "n" if rule.name == "cpu_broadcast" else "k"
    check_rule(rule, [Problem(m, n, 40, rhs=rhs) for m, n in ((9, 40), (33, 17), (24, 24))])
