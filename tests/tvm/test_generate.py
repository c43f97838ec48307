"""The generator from command line to pack: tools/generate.py, kernels/generate.py, build.py."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from click.testing import CliRunner, Result

from tf_tvm_ops.kernels import generate as generate_module
from tf_tvm_ops.kernels import manifest as manifest_format
from tf_tvm_ops.kernels.generate import generate
from tf_tvm_ops.kernels.manifest import file_sha256
from tf_tvm_ops.kernels.problem import Problem
from tf_tvm_ops.kernels.targets import TARGETS, Target
from tf_tvm_ops.tools.generate import generate as command
from tf_tvm_ops.tools.inspect import inspect

TARGET = "cpu:x86-64-v3"
ROW = "rows:\n- {site: a, m: 3, n: 5, k: 7}\n"


@pytest.fixture
def shapes(tmp_path: Path) -> Path:
    path = tmp_path / "shapes.yaml"
    path.write_text(ROW)
    return path


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


def run(*arguments: object) -> Result:
    return CliRunner().invoke(command, [str(a) for a in arguments])


def test_pack_holds_what_was_asked_for(tmp_path, shapes, cache):
    result = run("--shapes", shapes, "--target", TARGET, "--out", tmp_path / "p", "--cache", cache)
    assert result.exit_code == 0, result.output
    assert f"kernels 5 for {TARGET}" in result.output
    assert "\r" not in result.output, "no progress bar where there is no terminal"
    manifest = manifest_format.load(tmp_path / "p")
    (image,) = manifest.images
    assert (image.target, image.bytes) == (TARGET, (tmp_path / "p" / image.file).stat().st_size)
    assert file_sha256(tmp_path / "p" / image.file) == image.sha256
    problems = [kernel.problem for kernel in image.kernels]
    assert Problem(3, 5, 7) in problems
    assert sum(p.is_generic for p in problems) == 4
    assert {"tf_tvm_ops", "apache-tvm", "apache-tvm-ffi", "llvm", "linker"} == set(
        manifest.made_with
    )


def test_unchanged_kernels_are_not_compiled_again(tmp_path, shapes, cache):
    generate([shapes], [TARGET], tmp_path / "p", cache)
    again = generate([shapes], [TARGET], tmp_path / "p", cache)
    assert (again.compiled, again.reused) == (0, 5)
    shapes.write_text(ROW + "- {site: b, m: 3, n: 5, k: 8}\n")
    more = generate([shapes], [TARGET], tmp_path / "p", cache)
    assert (more.compiled, more.reused) == (1, 5)


def test_same_input_gives_the_same_bytes(tmp_path, shapes):
    digests = []
    for name in "ab":
        generate(
            [shapes], list(TARGETS), tmp_path / name, tmp_path / f"c{name}", skip_unverifiable=True
        )
        files = (p for p in (tmp_path / name).iterdir() if p.name != ".lock")
        digests.append({p.name: file_sha256(p) for p in files})
    assert digests[0] == digests[1]
    targets = [image.target for image in manifest_format.load(tmp_path / "a").images]
    assert "cpu:x86-64-v4-bf16" not in targets, "no table has bfloat16"


def test_kernel_that_fails_its_check_is_left_out(tmp_path, shapes, cache, monkeypatch):
    real = generate_module._verify

    def one_fault(pool, image, kernels, target, report):
        faults = real(pool, image, kernels, target, report)
        assert faults == [""] * len(kernels)
        return ["wrong", *faults[1:]]

    monkeypatch.setattr(generate_module, "_verify", one_fault)
    result = run("--shapes", shapes, "--target", TARGET, "--out", tmp_path / "p", "--cache", cache)
    assert result.exit_code == 1
    assert "left out bmm_f32_generic" in result.output
    (image,) = manifest_format.load(tmp_path / "p").images
    assert len(image.kernels) == 4


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"--target": "cpu:z80"}, "unknown target 'cpu:z80': expected one of cpu:x86-64-v3"),
        ({"--target": "cuda:sm_999"}, "unknown target 'cuda:sm_999'"),
        ({"--shapes": "absent.yaml"}, "absent.yaml: No such file"),
        ({"--out": "/dev/null/p"}, "cannot write"),
        ({"--cache": "/dev/null/c"}, "name another --cache"),
        (
            {"CXX": "no-such-compiler"},
            "no C++ compiler to link with: tried $CXX (no-such-compiler)",
        ),
        ({"PATH": "/nowhere"}, "tried c++, g++, clang++; install g++"),
        ({"rows": "rows:\n- {site: a, m: 3, n: -5, k: 7}\n"}, "shapes.yaml:2: n is -5"),
        (
            {"rows": "rows:\n- {site: a, m: 3, n: 5, k: 7, q: 1}\n"},
            "shapes.yaml:2: unknown key 'q'",
        ),
    ],
    ids=lambda v: next(iter(v)) if isinstance(v, dict) else "",
)
def test_bad_input_is_one_line_and_writes_nothing(
    tmp_path, shapes, cache, monkeypatch, change, words
):
    options = {"--shapes": shapes, "--target": TARGET, "--out": tmp_path / "p", "--cache": cache}
    for name, value in change.items():
        if name.startswith("--"):
            options[name] = value
        elif name == "rows":
            shapes.write_text(value)
        else:
            monkeypatch.setenv(name, value)
            if name == "PATH":
                monkeypatch.delenv("CXX", raising=False)
    result = run(*(part for option in options.items() for part in option))
    assert result.exit_code == 2
    assert words in result.output
    assert result.output.count("\n") == 1, result.output
    assert not (tmp_path / "p").exists()


def test_target_that_cannot_run_here(tmp_path, shapes, cache, monkeypatch):
    monkeypatch.setattr(
        "tf_tvm_ops.kernels.targets.host_cpu_flags", lambda: TARGETS[TARGET].cpu_flags
    )
    options = ("--shapes", shapes, "--out", tmp_path / "p", "--cache", cache)
    both = ("--target", TARGET, "--target", "cpu:x86-64-v4")
    refused = run(*options, *both)
    assert refused.exit_code == 2
    assert "cpu:x86-64-v4: this machine's CPU cannot run its kernels" in refused.output
    assert not (tmp_path / "p").exists()
    skipped = run(*options, *both, "--skip-unverifiable")
    assert skipped.exit_code == 0
    assert "skipped cpu:x86-64-v4" in skipped.output
    assert [i.target for i in manifest_format.load(tmp_path / "p").images] == [TARGET]


AMX = "cpu:x86-64-v4-amx-bf16"
TILES = "rows:\n- {site: a, m: 32, n: 32, k: 32, dtype: bfloat16}\n"


def amx_pack(folder: Path, cache: Path) -> tuple[Result, list[manifest_format.ImageEntry]]:
    """A pack for tile registers, and what it holds."""
    table = folder / "tiles.yaml"
    table.write_text(TILES)
    options = ("--shapes", table, "--target", TARGET, "--target", AMX)
    result = run(*options, "--out", folder / "p", "--cache", cache)
    return result, list(manifest_format.load(folder / "p").images)


def test_target_that_is_emulated_here(tmp_path, cache, monkeypatch):
    monkeypatch.setattr(Target, "runs_here", lambda self: not self.tile_dtypes)
    result, images = amx_pack(tmp_path, cache)
    assert result.exit_code == 0, result.output
    assert f"{AMX}: this machine cannot run it; its kernels were checked by emu" in result.output
    assert [(i.target, i.verified) for i in images] == [(TARGET, "native"), (AMX, "emulated")]
    (kernel,) = images[1].kernels
    assert (kernel.problem.m, kernel.config["rule"]) == (32, "cpu_amx")
    code = (tmp_path / "p" / images[1].file).read_bytes()
    assert b"\xc4\xe2\x78\x49\xc0" in code, "no tilerelease: not the CPU's instructions"
    listed = CliRunner().invoke(inspect, [str(tmp_path / "p")]).output
    assert "checked by emulation" in " ".join(listed.split())


def test_emulated_kernel_that_fails_its_check_is_left_out(tmp_path, cache, monkeypatch):
    """By its emulation, not by the image, whose code does not run here."""
    monkeypatch.setattr(Target, "runs_here", lambda self: not self.tile_dtypes)
    real = generate_module._verify
    checked = []

    def fault(pool, image, kernels, target, report):
        checked.append((target.name, target.emulated))
        return ["wrong"] if target.emulated else real(pool, image, kernels, target, report)

    monkeypatch.setattr(generate_module, "_verify", fault)
    result, images = amx_pack(tmp_path, cache)
    assert result.exit_code == 1
    assert "left out bmm_bf16_m32_n32_k32_lk_rn_amx" in result.output
    assert [emulated for _, emulated in checked] == [False, True]
    assert [len(image.kernels) for image in images] == [5, 0]


@pytest.mark.parametrize("compiled", [0, 32], ids=["starting", "compiling"])
def test_killed_generator_leaves_the_old_pack(tmp_path, shapes, cache, compiled):
    """As soon as it has processes, and when some of 900 kernels are compiled."""
    pack = tmp_path / "packs" / "p"
    generate([shapes], [TARGET], pack, cache)
    before = (pack / manifest_format.FILE_NAME).read_bytes()
    shapes.write_text("rows:\n- {site: a, m: {from: 1, to: 30}, n: {from: 1, to: 30}, k: 64}\n")
    main = "from tf_tvm_ops.tools.generate import generate; generate()"
    arguments = ["--shapes", shapes, "--target", TARGET, "--out", pack, "--cache", tmp_path / "c"]
    process = subprocess.Popen([sys.executable, "-c", main, *map(str, arguments)], cwd=tmp_path)
    children: list[int] = []
    deadline = time.monotonic() + 300
    while len(children) < 2 or len(list((tmp_path / "c").glob("*/*.o"))) < compiled:
        assert process.poll() is None, "it ended before there was anything to test"
        assert time.monotonic() < deadline, "it does nothing"
        time.sleep(0.02)
        children = [child.pid for child in psutil.Process(process.pid).children()]
    process.send_signal(signal.SIGKILL)
    process.wait()
    deadline = time.monotonic() + 60
    while any(Path(f"/proc/{child}").exists() for child in children):
        assert time.monotonic() < deadline, "its processes outlive it"
        time.sleep(0.1)
    assert (pack / manifest_format.FILE_NAME).read_bytes() == before
    assert [p.name for p in pack.parent.iterdir()] == ["p"]
