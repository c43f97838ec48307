"""What kernels prefetch: kernels/ahead.py."""

from __future__ import annotations

import ctypes
from typing import Any

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
    # More than to ask for at once: in turns, over the steps of a tile or the tiles of a strip.
    (Problem(33, 65, 40), CpuBroadcast(), BroadcastConfig(17, 3, 1, 3)),
    (Problem(33, 16, 90), CpuBroadcast(), BroadcastConfig(12, 2, 2, 4)),
    (Problem(40, 65, 34), CpuBroadcast(), BroadcastConfig(14, 3, 1, 4)),
    (Problem(41, 35, 40, rhs="k"), CpuDot(), DotConfig(8, 1)),
]


def touched(problem, choice, folder, monkeypatch, *, heads, end=1, gap=0):
    """Elements of lhs and rhs of four matrices that a call asks for, and how often.

    The call computes matrices ``[0, end)`` of four that lie one behind the other, with ``gap``
    elements between their rows.
    """
    m, n, k = problem.extents()
    shapes = {name: problem.stored(name) for name in ("lhs", "rhs")}
    sizes = {name: 4 * outer * (inner + gap) for name, (outer, inner) in shapes.items()}

    def note(view: View, index) -> None:
        # The addend, which is not added, takes the notes: those of lhs, then those of rhs.
        behind = 0 if view.buffer is places["lhs"] else sizes["lhs"]
        place = [index + behind]
        noted = places["addend"].vload(place) + tirx.FloatImm("float32", 1.0)
        T.buffer_store(places["addend"], noted, place)

    places: dict[str, Any] = {}
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
    out = np.zeros(4 * m * n, np.float32)
    workspace = np.zeros(kernel.workspace_bytes + 64, np.uint8)
    aligned = -(-workspace.ctypes.data // 64) * 64

    def strides(matrix: int) -> tuple[int, int]:
        # As cc/dispatch/product.cc has them: a single batch dimension is that of the batches.
        return (matrix, 0) if heads == 1 else (heads * matrix, matrix)

    function(
        *(ctypes.c_void_p(x.ctypes.data) for x in (lhs, rhs, notes, out)),
        ctypes.c_void_p(aligned),
        *(0, end, heads),
        *(*strides(sizes["lhs"] // 4), shapes["lhs"][1] + gap),
        *(*strides(sizes["rhs"] // 4), shapes["rhs"][1] + gap),
        *(0, 0, 0, ADD_NOTHING),
        *(*strides(m * n), n),
        1.0,
    )
    assert (out[: end * m * n] == k).all()
    found = np.split(notes, [sizes["lhs"]])
    rows = [f.reshape(4, outer, -1) for f, (outer, _) in zip(found, shapes.values())]
    if gap:
        return [r[..., : r.shape[-1] - gap] for r in rows]
    # One behind the other.
    return [r.reshape(4, 1, -1) for r in rows]


@pytest.mark.parametrize("gap", [0, 3])
@pytest.mark.parametrize("heads", [1, 2])
@pytest.mark.parametrize(
    ("problem", "rule", "config"), CASES, ids=lambda value: getattr(value, "name", str(value))
)
def test_the_next_matrices_are_asked_for(problem, rule, config, heads, gap, tmp_path, monkeypatch):
    """Also the one after the last head, which belongs to the next batch."""
    monkeypatch.setattr(ahead, "FAR_BYTES", 1)
    assert ahead.lead(problem) == 1
    choice = Choice(rule, config)
    for operand in touched(problem, choice, tmp_path, monkeypatch, heads=heads, end=3, gap=gap):
        assert not operand[0].any()
        pieces = operand[1:, :, :: ahead.LINE_BYTES // 4]
        assert pieces.all()
        # Tiles share what there is: little is asked for twice.
        assert operand.sum() < 1.7 * pieces.size


@pytest.mark.parametrize(
    ("problem", "rule", "config"),
    [
        *CASES[-4:],
        (Problem(31, 31, 128, rhs="k"), CpuPack(), BroadcastConfig(11, 2)),
        (Problem(128, 128, 64), CpuBroadcast(), BroadcastConfig(8, 2)),
        (Problem(31, 31, 128, rhs="k"), CpuDot(), DotConfig(4, 4)),
    ],
    ids=lambda value: getattr(value, "name", str(value)),
)
def test_much_is_not_asked_for_at_once(problem, rule, config, monkeypatch):
    asked = []
    prefetch = ahead.Ahead.prefetch

    def note(self, first, count, whole):
        lines = sum(rows.joined().lines for rows in self.operands)
        asked.append(lines * count / whole)
        prefetch(self, first, count, whole)

    monkeypatch.setattr(ahead.Ahead, "prefetch", note)
    build.tir(Kernel(problem, Choice(rule, config), V3))
    assert asked
    assert max(asked) <= 32


def test_small_matrices_are_asked_for_further_ahead(tmp_path, monkeypatch):
    monkeypatch.setattr(ahead, "FAR_BYTES", 1)
    problem = Problem(12, 12, 64)
    assert ahead.lead(problem) == 2
    choice = Choice(CpuBroadcast(), BroadcastConfig(6, 2))
    for heads in (1, 4):
        folder = tmp_path / str(heads)
        folder.mkdir()
        with monkeypatch.context() as patch:
            for operand in touched(problem, choice, folder, patch, heads=heads):
                assert not operand[[0, 1, 3]].any()
                assert operand[2][:, :: ahead.LINE_BYTES // 4].all()


def test_operands_that_stay_in_the_cache_are_not(tmp_path, monkeypatch):
    problem, rule, config = CASES[0]
    for operand in touched(problem, Choice(rule, config), tmp_path, monkeypatch, heads=2):
        assert not operand.any()


def test_bounds():
    assert ahead.lead(Problem(1, 17, 64)) == 0  # a product that only reads
    assert ahead.lead(Problem(None, None, None)) == 0
    assert ahead.lead(Problem(128, 128, 64)) == 1
    # Small matrices: memory takes longer than one of them.
    assert ahead.lead(Problem(12, 12, 64)) == 2
    assert ahead.lead(Problem(12, 12, 64, dtype="float16")) == 3


@given(m=EXTENT, n=EXTENT, tile=st.integers(1, 300), lines=st.integers(1, 400))
def test_shares_leave_nothing_out(m, n, tile, lines):
    whole = m * n
    asked = []
    for first in range(0, whole, tile):
        start, share = ahead.share_of(lines, first, min(tile, whole - first), whole)
        start = int(start)
        assert start + share <= lines
        asked += range(start, start + share)
    assert set(asked) == set(range(lines))
    # At worst each tile asks for two of which it shares one with a neighbour.
    assert len(asked) <= lines + -(-whole // tile)


@pytest.mark.parametrize("rule", [CpuBroadcast(), CpuPack(), CpuDot()], ids=lambda rule: rule.name)
def test_results(rule, check_rule, monkeypatch):
    monkeypatch.setattr(ahead, "FAR_BYTES", 1)
    rhs = "n" if rule.name == "cpu_broadcast" else "k"
    check_rule(rule, [Problem(m, n, 40, rhs=rhs) for m, n in ((9, 40), (33, 17), (24, 24))])
