"""Packs, targets and the environment: cc/dispatch/dispatcher.cc and cc/dispatch/config.cc."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tf_tvm_ops import _native, config

from .fake_packs import (
    AMX_BF16,
    AMX_FP16,
    DTYPES,
    GENERIC,
    V3,
    V4,
    V4_BF16,
    FakeKernel,
    write_pack,
)

ONES = np.ones((2, 3, 4), np.float32), np.ones((2, 4, 5), np.float32)


def run_python(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run code in a process of its own, with these variables of ours and no others."""
    names = {variable.name for variable in config.ALL}
    kept = {name: value for name, value in os.environ.items() if name not in names}
    return subprocess.run(
        [sys.executable, "-c", code],
        env={**kept, **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def best_of_pack() -> str:
    """The target that is used of a pack for v3 and v4."""
    return next(target for target in _native.supported_cpu_targets() if target in (V3, V4))


def our_lines(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith("tf_tvm_ops: ")]


def test_supported_targets_are_those_of_the_cpu() -> None:
    flags = set()
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("flags"):
            flags = set(line.split(":")[1].split())
    v3 = {"avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe"} <= flags
    v4 = v3 and {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"} <= flags
    bf16 = v4 and "avx512_bf16" in flags
    # Linux names the flag only where it saves the registers.
    tiles = v4 and "amx_tile" in flags
    amx = [AMX_FP16] * (tiles and "amx_fp16" in flags) + [AMX_BF16] * (
        tiles and "amx_bf16" in flags
    )
    assert _native.supported_cpu_targets() == amx + [V4_BF16] * bf16 + [V4] * v4 + [V3] * v3


def test_kernel_info(dispatcher: _native.Dispatcher, pack: Path) -> None:
    kernel = dispatcher.find(3, 4, 5)
    assert kernel is not None
    assert (kernel.m, kernel.n, kernel.k, kernel.lhs, kernel.rhs) == (3, 4, 5, "k", "n")
    assert (kernel.dtype, kernel.is_generic) == ("float32", False)
    assert kernel.symbol == "fake_float32_3x4x5_lk_rn_product"
    assert kernel.pack == str(pack)
    assert kernel.target == best_of_pack()
    assert kernel.config == '{"rule":"fake","unroll":4}'
    assert kernel.ready()
    generic = dispatcher.find(None, None, None, lhs="m", rhs="k")
    assert generic is not None
    assert (generic.m, generic.n, generic.k, generic.is_generic) == (None, None, None, True)
    assert dispatcher.find(3, 4, 6) is None
    assert dispatcher.find(3, 4, 5, lhs="m") is None
    double = dispatcher.find(3, 4, 5, dtype="float64")
    assert double is not None
    assert (double.dtype, double.problem) == ("float64", "float64 3x4x5 lhs:k rhs:n")
    assert double.symbol == "fake_float64_3x4x5_lk_rn_product"


def test_every_kernel_of_a_large_pack_is_found(tmp_path: Path) -> None:
    kernels = [
        FakeKernel((m, n, k), lhs, rhs, dtype)
        for m in range(1, 4)
        for n in range(1, 4)
        for k in (1, 64)
        for lhs in "km"
        for rhs in "nk"
        for dtype in DTYPES
    ]
    dispatcher = _native.Dispatcher()
    assert dispatcher.load_pack(write_pack(tmp_path, {V3: kernels})).kernels == len(kernels)
    for kernel in kernels:
        m, n, k = kernel.extents or (None, None, None)
        found = dispatcher.find(m, n, k, kernel.lhs, kernel.rhs, kernel.dtype)
        assert found is not None
        assert found.symbol == kernel.symbol
    assert dispatcher.find(None, None, None) is None
    # Problems that differ in one extent only, of which some share a place in the table.
    for extent in range(65, 4000):
        assert dispatcher.find(extent, 1, 1) is None
        assert dispatcher.find(1, extent, 1) is None
        assert dispatcher.find(1, 1, extent) is None


@pytest.mark.parametrize(("limit", "better"), [(V3, V4), (V4, V4_BF16), (V4_BF16, AMX_BF16)])
def test_limit_of_the_target(tmp_path: Path, limit: str, better: str) -> None:
    kernels = (*GENERIC, FakeKernel((3, 5, 4)))
    pack = write_pack(tmp_path / "both", {V3: GENERIC, better: kernels})
    only_better = write_pack(tmp_path / "better", {better: GENERIC})
    dispatcher = _native.Dispatcher(limit)
    info = dispatcher.load_pack(pack)
    assert info.targets == [V3]
    reasons = (f"the CPU target is limited to {limit}", "this CPU, or its operating system, cannot")
    runs_here = better in _native.supported_cpu_targets()
    assert info.ignored[0].startswith(f"{better}: {reasons[0 if runs_here else 1]}")
    _, kernel = dispatcher.matmul(*ONES)
    assert kernel is not None
    assert kernel.target == V3
    with pytest.raises(ValueError, match="none of its images holds a kernel for this machine"):
        dispatcher.load_pack(only_better)


def test_unknown_limit_of_the_target() -> None:
    targets = f"{AMX_FP16}, {AMX_BF16}, {V4_BF16}, {V4}, {V3}, or ''"
    with pytest.raises(ValueError, match=rf"cpu_target_limit: expected {targets} .*got 'x86'"):
        _native.Dispatcher("x86")


def test_last_pack_loaded_comes_first(tmp_path: Path) -> None:
    first = write_pack(tmp_path / "first", {V3: (*GENERIC, FakeKernel((3, 5, 4)))})
    second = write_pack(tmp_path / "second", {V3: GENERIC})
    dispatcher = _native.Dispatcher()
    dispatcher.load_pack(first)
    generic = dispatcher.find(None, None, None)
    assert generic is not None
    assert generic.pack == str(first)
    dispatcher.load_pack(second)
    assert [info.path for info in dispatcher.packs()] == [str(second), str(first)]
    fixed, newer = dispatcher.find(3, 5, 4), dispatcher.find(None, None, None)
    assert fixed is not None
    assert newer is not None
    assert (fixed.pack, newer.pack) == (str(first), str(second))
    # What was found before stays usable.
    assert generic.ready()

    # Loaded again, by another name of the same folder, it moves to the front.
    (tmp_path / "link").symlink_to(first)
    dispatcher.load_pack(tmp_path / "link" / ".." / "first")
    assert [info.path for info in dispatcher.packs()] == [str(first), str(second)]


def test_pack_loaded_again_is_replaced(tmp_path: Path) -> None:
    pack = write_pack(tmp_path / "pack", {V3: (*GENERIC, FakeKernel((3, 5, 4)))})
    dispatcher = _native.Dispatcher()
    dispatcher.load_pack(pack)
    _, old = dispatcher.matmul(*ONES)
    write_pack(pack, {V3: (*GENERIC, FakeKernel((7, 7, 7)))})
    assert dispatcher.load_pack(pack).kernels == len(GENERIC) + 1
    assert len(dispatcher.packs()) == 1
    assert dispatcher.find(3, 5, 4) is None
    assert dispatcher.find(7, 7, 7) is not None
    out, new = dispatcher.matmul(*ONES)
    assert (out == 4).all()
    assert old is not None
    assert new is not None
    assert new.symbol == GENERIC[0].symbol
    assert old.ready()


def test_path_that_is_not_utf8(tmp_path: Path, pack: Path) -> None:
    folder = os.fsdecode(os.fsencode(tmp_path) + b"/p\xff")
    os.symlink(pack, folder + "-link")
    os.makedirs(folder)
    for path in pack.iterdir():
        os.link(path, os.path.join(folder, path.name))
    dispatcher = _native.Dispatcher()
    assert dispatcher.load_pack(folder).path == folder
    _, kernel = dispatcher.matmul(*ONES)
    assert kernel is not None
    assert kernel.pack == folder


PRINT_PACKS = (
    "from tf_tvm_ops import _native\n"
    "for info in _native.global_dispatcher().packs(): print(info.path, info.targets[0])\n"
)


def packs_in_force(**environment: str) -> tuple[list[list[str]], list[str]]:
    done = run_python(PRINT_PACKS, **environment)
    assert done.returncode == 0, done.stderr
    packs = [line.split() for line in done.stdout.splitlines()]
    return [p for p in packs if not p[0].endswith("/packs/default")], our_lines(done.stderr)


def test_packs_of_the_environment(tmp_path: Path) -> None:
    first, second = (write_pack(tmp_path / name, {V3: GENERIC}) for name in ("a", "b"))
    absent = tmp_path / "absent"
    packs, messages = packs_in_force(TF_TVM_OPS_PACKS=f"{first}:{absent}::{second}")
    assert packs == [[str(first), V3], [str(second), V3]]
    (message,) = messages
    assert message.startswith(f"tf_tvm_ops: warning: the pack '{absent}' is not used: No such")


def test_target_of_the_environment(pack: Path) -> None:
    packs, messages = packs_in_force(TF_TVM_OPS_PACKS=str(pack), TF_TVM_OPS_CPU_TARGET=V3)
    assert (packs, messages) == ([[str(pack), V3]], [])
    packs, messages = packs_in_force(TF_TVM_OPS_PACKS=str(pack), TF_TVM_OPS_CPU_TARGET="none")
    assert (packs, messages) == ([], [])
    packs, messages = packs_in_force(TF_TVM_OPS_PACKS=str(pack), TF_TVM_OPS_CPU_TARGET="x86")
    assert packs == [[str(pack), best_of_pack()]]
    assert messages == [
        "tf_tvm_ops: warning: TF_TVM_OPS_CPU_TARGET='x86': expected one of none, cpu:x86-64-v3, "
        "cpu:x86-64-v4, cpu:x86-64-v4-bf16, cpu:x86-64-v4-amx-bf16, cpu:x86-64-v4-amx-fp16; the "
        "default '' is used"
    ]


@pytest.mark.parametrize(
    ("level", "severities"),
    [
        ("error", set()),
        ("", {"warning"}),
        ("warning", {"warning"}),
        ("info", {"warning", "info"}),
        ("loud", {"warning"}),
    ],
)
def test_log_level(pack: Path, level: str, severities: set[str]) -> None:
    _, messages = packs_in_force(TF_TVM_OPS_PACKS=f"/absent:{pack}", TF_TVM_OPS_LOG=level)
    assert {message.split(": ")[1] for message in messages} == severities
    complaints = [message for message in messages if "TF_TVM_OPS_LOG='loud'" in message]
    assert len(complaints) == (level == "loud")


def test_message_is_one_line(tmp_path: Path) -> None:
    _, messages = packs_in_force(TF_TVM_OPS_PACKS=f"{tmp_path}/two\nlines")
    (message,) = messages
    assert "two lines" in message


def test_header_has_every_variable() -> None:
    header = config.header()
    for variable in config.ALL:
        assert f'"{variable.name}"' in header
        for choice in variable.choices:
            assert f'"{choice}"' in header
