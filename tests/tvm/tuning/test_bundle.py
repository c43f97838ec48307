"""Candidates that are measured by a Python with NumPy alone, and what comes back."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.tvm.cuda.fake_cuda import fake_libraries
from tests.tvm.cuda.gpu_bundle import lonely_python
from tests.tvm.tuning.conftest import SMALL
from tests.tvm.tuning.faulty import FaultyBackend
from tf_tvm_ops.kernels import manifest
from tf_tvm_ops.kernels.cuda import build
from tf_tvm_ops.kernels.cuda.build import CudaKernel
from tf_tvm_ops.kernels.cuda.targets import CUDA_TARGETS
from tf_tvm_ops.kernels.emulate.build import DeviceCode, compile_emulated
from tf_tvm_ops.kernels.problem import Problem
from tf_tvm_ops.kernels.tuning import bundle, record
from tf_tvm_ops.kernels.tuning.backend import CpuBackend
from tf_tvm_ops.kernels.tuning.cuda_backend import CudaBackend
from tf_tvm_ops.kernels.tuning.search import BruteForce, State
from tf_tvm_ops.kernels.tuning.workload import COLD, Workload
from tf_tvm_ops.tools.cli import main

TABLE = """
rows:
- {site: scores, batch: [4], m: 3, n: 5, k: 7}
- {site: values, batch: [2, 2], m: 1, n: 17, k: 8, rhs: k}
"""
NEW = CUDA_TARGETS["cuda:sm_90"]


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return lonely_python(tmp_path_factory.mktemp("python"))


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "table.yaml"
    path.write_text(TABLE)
    return path


def carried(folder: Path) -> Path:
    """The bundle at another place."""
    return Path(shutil.move(folder, folder.with_name("elsewhere")))


def run(python: Path, folder: Path, **environment: str) -> subprocess.CompletedProcess:
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "LD_"))}
    return subprocess.run(
        [python, folder / "run.py"],
        env={**kept, **environment},
        cwd="/",
        capture_output=True,
        text=True,
        check=False,
    )


def tune(*arguments: object) -> str:
    result = CliRunner().invoke(main, ["tune", *map(str, arguments)])
    assert result.exit_code == 0, result.output
    return result.output


def test_from_table_to_pack_by_way_of_another_machine(python, table, tmp_path, cache, fast_target):
    out = tmp_path / "bundle"
    common = ("--shapes", table, "--target", fast_target.name, "--objects", cache)
    assert "8 candidates of 2 problems" in tune(*common, "--emit", out, "--trials", 4)
    out = carried(out)
    done = run(python, out)
    assert done.returncode == 0, done.stderr
    assert "8 candidates measured, 0 failed" in done.stdout
    results = out / "results.jsonl"
    records = record.read(results)
    assert {r.status for r in records.values()} == {record.OK}
    assert len(records) == 8
    # The slowest of each are made the fastest: the pack follows what was measured.
    wanted = {}
    for r in records.values():
        if r.median_us >= wanted.get(r.workload.problem, r).median_us:
            wanted[r.workload.problem] = r
    lines = [json.loads(line) for line in results.read_text().splitlines()]
    for line in lines:
        if wanted[Problem.from_json(line["problem"])].config == line["config"]:
            line["median_us"] = 1e-3
    results.write_text("".join(json.dumps(line) + "\n" for line in lines))
    pack, kept = tmp_path / "pack", tmp_path / "records.jsonl"
    tune(*common, "--apply", results, "--out", pack, "--records", kept)
    (image,) = manifest.load(pack).images
    found = {k.problem: k.config for k in image.kernels if not k.problem.is_generic}
    assert found == {problem: r.config for problem, r in wanted.items()}
    assert record.read(kept).keys() == records.keys()


def test_measuring_goes_on_where_it_ended(python, table, tmp_path, cache, fast_target):
    out = tmp_path / "bundle"
    common = ("--shapes", table, "--target", fast_target.name, "--objects", cache)
    tune(*common, "--emit", out, "--trials", 2)
    assert run(python, out).returncode == 0
    results = out / "results.jsonl"
    lines = results.read_bytes().splitlines(keepends=True)
    results.write_bytes(b"".join(lines[:2]) + lines[2][:20])
    done = run(python, out)
    assert "2 candidates measured" in done.stdout, done.stderr
    assert len(record.read(results)) == 4
    assert run(python, out).stdout.count("0 candidates measured") == 1


def test_faults_are_recorded_there(python, tmp_path, cache, fast_target):
    backend = FaultyBackend(fast_target, cache, ("", "crashes", "raises"))
    state = State(SMALL, backend.space(SMALL.problem))
    bundle.emit(tmp_path / "bundle", backend, [state], BruteForce(), 9, jobs=1)
    done = run(python, tmp_path / "bundle")
    assert done.returncode == 0, done.stderr
    statuses = {
        r.config["fault"]: r.status for r in record.read(tmp_path / "bundle/results.jsonl").values()
    }
    # What could not be compiled has not travelled.
    assert statuses == {"": record.OK, "crashes": record.CRASHED}


def test_candidates_for_a_gpu(python, tmp_path, cache):
    """Through TVM's CUDA runtime; the driver is a fake, and kernels run on the emulator."""
    fake_libraries(tmp_path)
    backend = CudaBackend(NEW, cache)
    workloads = (Workload(Problem(1, 17, 8, rhs="k"), 6), Workload(Problem(5, 6, 7), 4, COLD))
    states = [State(w, backend.space(w.problem)) for w in workloads]
    out = tmp_path / "bundle"
    assert bundle.emit(out, backend, states, BruteForce(), 2, jobs=1) == 4
    built = [
        build.build_kernel(CudaKernel(s.workload.problem, c.choice), NEW, cache)
        for s in states
        for c in s.space[:2]
    ]
    code = [DeviceCode(f"{b.kernel.symbol}_kernel", b.lowered.cuda.read_text()) for b in built]
    compile_emulated(code, tmp_path / "kernels.so", sanitize=False)
    environment = {
        "LD_LIBRARY_PATH": str(tmp_path),
        "FAKE_DRIVER_KERNELS": str(tmp_path / "kernels.so"),
    }
    done = run(python, out, **environment)
    assert done.returncode == 0, done.stderr
    records = list(record.read(out / "results.jsonl").values())
    assert [r.status for r in records] == [record.OK] * 4, [r.message for r in records]
    assert {r.machine for r in records} == {"Emulated GPU, compute capability 9.0"}
    assert {r.target for r in records} == {NEW.name}


def test_no_gpu_is_said_plainly(python, tmp_path, cache):
    backend = CudaBackend(NEW, cache)
    problem = Problem(5, 6, 7)
    bundle.emit(
        tmp_path / "b",
        backend,
        [State(Workload(problem, 4), backend.space(problem))],
        BruteForce(),
        1,
    )
    done = run(python, tmp_path / "b")
    assert done.returncode == 2
    assert done.stderr.startswith("Error: no GPU to measure on: ")
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--emit", "x", "--out", "y", "--target", "cpu:x86-64-v3"], "--emit writes no pack"),
        (["--target", "cpu:x86-64-v3"], "--out is missing"),
        (["--emit", "x"], "--emit needs one --target"),
        (["--emit", "x", "--report", "r.html"], "--emit measures nothing to report"),
        (["--apply", "nothing.jsonl", "--out", "y"], "nothing.jsonl: no such file"),
        (["--apply", "a", "--tracker", "h:1", "--key", "k", "--out", "y"], "different ways"),
        (["--tracker", "h:1", "--out", "y"], "--tracker and --key go together"),
        (["--tracker", "h", "--key", "k", "--out", "y"], "expected HOST:PORT"),
        (["--budget", "soon", "--out", "y"], "expected a time such as 90s, 10m or 1h"),
        (["--target", "cuda:sm_999", "--out", "y"], "sm_999"),
        (["--target", "cuda:sm_90", "--out", "y"], "nothing can be measured here"),
        (["--records", "/proc/nosuch/r.jsonl", "--out", "y"], "name another --records"),
    ],
)
def test_wrong_options(arguments, message, table, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    result = CliRunner().invoke(main, ["tune", "--shapes", str(table), *arguments])
    assert result.exit_code == 2
    assert message in result.output
    assert not (tmp_path / "x").exists()
    assert not (tmp_path / "y").exists()


def test_results_of_two_machines_are_not_mixed(table, tmp_path, cache, fast_target):
    backend = CpuBackend(fast_target, cache)
    (candidate, *_) = backend.space(SMALL.problem)
    common = (candidate.choice.to_json(), backend.name, backend.code)
    path = tmp_path / "results.jsonl"
    record.append(
        path,
        [record.Record(SMALL, *common, machine, {}, record.OK, 1.0) for machine in ("one", "two")],
    )
    arguments = ["--shapes", table, "--target", fast_target.name, "--objects", cache]
    arguments += ["--apply", path, "--out", tmp_path / "pack"]
    result = CliRunner().invoke(main, ["tune", *map(str, arguments)])
    assert result.exit_code == 2
    assert "measurements of one machine in the results, found one; two" in result.output


def test_results_of_other_products_are_refused(table, tmp_path, cache, fast_target):
    backend = CpuBackend(fast_target, cache)
    (candidate, *_) = backend.space(SMALL.problem)
    common = (candidate.choice.to_json(), backend.name, backend.code)
    path = tmp_path / "results.jsonl"
    cold = Workload(SMALL.problem, SMALL.matrices, COLD)
    record.append(path, [record.Record(cold, *common, "one", {}, record.OK, 1.0)])
    arguments = ["--shapes", table, "--target", fast_target.name, "--objects", cache]
    arguments += ["--apply", path, "--out", tmp_path / "pack"]
    result = CliRunner().invoke(main, ["tune", *map(str, arguments)])
    assert result.exit_code == 2
    assert "of operands that were not hot" in " ".join(result.output.split())
    assert not (tmp_path / "pack").exists()


@pytest.mark.parametrize("text", ["{", "[]", '{"schema": 9, "entries": []}', '{"schema": 1}'])
def test_damaged_bundle(text, tmp_path):
    (tmp_path / "bundle.json").write_text(text)
    result = CliRunner().invoke(main, ["measure", str(tmp_path)])
    assert result.exit_code == 2
    assert "bundle.json" in result.output
    assert "Traceback" not in result.output
