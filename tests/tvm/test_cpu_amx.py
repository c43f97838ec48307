"""The rule for tile registers: schedules/cpu_amx.py, amx.py.

Results are those of the CPU's tiles where it has them, and else of their emulation, which
test_amx_emulation.py is about.
"""

from __future__ import annotations

import re
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tf_tvm_ops.kernels import build, generate, verify
from tf_tvm_ops.kernels.build import Kernel
from tf_tvm_ops.kernels.problem import Problem
from tf_tvm_ops.kernels.schedules import Choice, amx, choose
from tf_tvm_ops.kernels.schedules.cpu_amx import AmxConfig, CpuAmx
from tf_tvm_ops.kernels.targets import TARGETS
from tf_tvm_ops.kernels.verify import Layout

BF16 = TARGETS["cpu:x86-64-v4-amx-bf16"]
FP16 = TARGETS["cpu:x86-64-v4-amx-fp16"]
RULE = CpuAmx()

both = pytest.mark.parametrize("target", [BF16, FP16], ids=str)


def problem(m, n, k, target=BF16, rhs="k", lhs="k"):
    (dtype,) = target.dtypes
    return Problem(m, n, k, lhs, rhs, dtype)


def kernel(wanted, target, config=None):
    return Kernel(wanted, Choice(RULE, config or RULE.propose(wanted, target)), target)


def checker(target):
    return target if target.runs_here() else target.emulation()


@both
@pytest.mark.parametrize("lhs", "km")
@pytest.mark.parametrize("rhs", "nk")
def test_results(faults, target, lhs, rhs):
    """Whole tiles, overlapping and low ones, steps of K left over, odd K."""
    kernels = []
    for m, n, k in [(1, 1, 1), (5, 3, 2), (16, 32, 64), (30, 40, 65)]:
        wanted = problem(m, n, k, target, rhs, lhs)
        *_, config = RULE.space(wanted, target)
        kernels.append((wanted, Choice(RULE, config), checker(target)))
    assert faults(kernels) == [""] * len(kernels)


def test_results_of_every_block(faults):
    wanted = problem(49, 63, 33)
    kernels = [(wanted, Choice(RULE, config), checker(BF16)) for config in RULE.space(wanted, BF16)]
    assert len(kernels) == 6
    assert faults(kernels) == [""] * len(kernels)


@pytest.fixture(scope="module")
def random_kernels(tmp_path_factory):
    """Kernels of shapes on both sides of every edge, in one image: symbol, problem, workspace."""
    folder = tmp_path_factory.mktemp("amx")
    kernels = []
    extents = [(1, 64, 33), (3, 7, 95), (15, 17, 64), (16, 31, 1), (18, 48, 34), (33, 16, 63)]
    extents += [(47, 80, 32), (48, 15, 97), (70, 66, 129)]
    for position, (m, n, k) in enumerate(extents):
        for target in (BF16, FP16):
            rhs, lhs = "nk"[position % 2], "kkm"[position % 3]
            wanted = problem(m, n, k, target, rhs, lhs)
            configs = list(RULE.space(wanted, target))
            config = configs[position % len(configs)]
            kernels.append(kernel(wanted, checker(target), config))
    objects = [folder / f"{index}.o" for index in range(len(kernels))]
    for made, path in zip(kernels, objects):
        build.compile_object(made, path)
    build.link_image(objects, folder / "image.so")
    return folder / "image.so", [(k.symbol, k.problem, k.workspace_bytes) for k in kernels]


layouts = st.builds(
    Layout,
    batch=st.integers(1, 3),
    heads=st.integers(1, 3),
    gap=st.integers(0, 9),
    broadcast_lhs=st.booleans(),
    broadcast_rhs=st.booleans(),
    split=st.integers(0, 1),
    scale=st.floats(-4, 4, width=16),
    addend=st.sampled_from(["", "matrix", "row", "column"]),
)


@given(layouts, st.integers(0, 17))
def test_random_layouts(random_kernels, layout, index):
    image, entries = random_kernels
    fault = verify.check_layout(image, *entries[index], layout)
    assert not fault


@both
@pytest.mark.parametrize("wanted", [(128, 128, 64), (40, 24, 100)], ids=str)
def test_instructions_are_in_the_code(target, wanted):
    """Compiled for the target everywhere, run where the CPU has it."""
    made = kernel(problem(*wanted, target), target, AmxConfig(2, 2))
    found = Counter(re.findall(r"^\s+(ldtilecfg|tile\w+|tdp\w+)", build.assembly(made), re.M))
    blocks = 1 if wanted[0] == 128 else 2  # whole ones, and those of the last row tile
    steps = 2 if wanted[0] == 128 else 4  # in the code: all, the last for what K leaves over
    sums = 4 if blocks == 1 else 4 + 2
    (dtype,) = target.dtypes
    assert found == {
        "ldtilecfg": 1,
        "tilezero": sums,
        "tileloadd": steps * (4 if blocks == 1 else 4 + 3),
        amx.DOT[dtype]: steps * sums,
        "tilestored": sums,
        "tilerelease": 1,
    }


def test_tiles_are_set_up_once_for_all_matrices():
    code = build.assembly(kernel(problem(16, 16, 32), BF16))
    labels = [
        line for line in code.splitlines() if re.match(r"\.LBB|\s+(ldtilecfg|tiler|tdp|j)", line)
    ]
    names = [line.split()[0] for line in labels]
    first, product, last = (names.index(n) for n in ("ldtilecfg", "tdpbf16ps", "tilerelease"))
    assert first < product < last
    # A jump back to a label between the set-up and the product is the loop over the matrices.
    inside = {name.rstrip(":") for name in names[first:product] if name.startswith(".LBB")}
    back = [line.split()[-1] for line in labels[product:last] if line.split()[0].startswith("j")]
    assert inside & set(back)


@both
def test_checked_code_is_the_shipped_code_but_for_the_instructions(target):
    """The same TensorIR, with other LLVM IR behind the functions it calls."""
    emulated = target.emulation()
    assert emulated is not None, "this CPU has no AVX2, without which no kernel can be made"
    wanted = problem(33, 47, 65, target)
    shipped, checked = (build.tir(kernel(wanted, t)) for t in (target, emulated))
    assert shipped.script() == checked.script()
    # LLVM IR is among the metadata, which the above leaves out.
    assert "llvm.x86.tileloadd64" in shipped.script(show_meta=True)
    assert "llvm.x86." not in checked.script(show_meta=True)


@pytest.mark.parametrize(
    ("wanted", "target", "reason"),
    [
        (Problem(32, 32, 32), BF16, "dtype without tile products"),
        (problem(32, 32, 32, FP16), BF16, "target without tile products of float16"),
        (problem(32, 32, 32, BF16), FP16, "target without tile products of bfloat16"),
        (
            problem(32, 32, 32),
            TARGETS["cpu:x86-64-v4-bf16"],
            "target without tile products of bfloat16",
        ),
        (Problem(None, None, None, dtype="bfloat16"), BF16, "extents not fixed"),
    ],
    ids=str,
)
def test_refuses_what_it_cannot_do(wanted, target, reason):
    assert RULE.refusal(wanted, target) == reason


@pytest.mark.parametrize("knobs", [(0, 1), (2, 3), (4, 1)])
def test_config_is_validated(knobs):
    with pytest.raises(ValueError, match="tile"):
        AmxConfig(*knobs)


@both
def test_is_chosen_where_it_plausibly_wins(target):
    for extents in [(128, 128, 64), (384, 64, 384), (32, 32, 64)]:
        assert choose(problem(*extents, target), target).rule is not None
        assert choose(problem(*extents, target), target).rule.name == "cpu_amx"
    for extents in [(1, 17, 128), (4, 512, 512), (8, 17, 64)]:
        assert choose(problem(*extents, target), target).rule.name != "cpu_amx"


@both
def test_image_holds_only_what_tiles_are_better_for(target):
    (dtype,) = target.dtypes
    table = [problem(128, 128, 64, target), problem(1, 17, 128, target), Problem(32, 32, 32)]
    chosen = list(generate._choose_all(table, [dtype], target, {}))
    assert [k.problem for k in chosen] == table[:1]
