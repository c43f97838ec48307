"""The whole GPU check: a bundle is made, and run by a Python that has NumPy alone.

TVM's CUDA runtime and ours are those of a GPU; the driver below them is a fake, and kernels run on
the emulator.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tarfile
import venv
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from tests.tvm.cuda.conftest import NEW
from tests.tvm.cuda.fake_cuda import fake_libraries
from tf_tvm_ops.kernels.compute import KERNEL_ABI
from tf_tvm_ops.kernels.cuda import build
from tf_tvm_ops.kernels.cuda.build import CudaKernel
from tf_tvm_ops.kernels.cuda.image import link_image
from tf_tvm_ops.kernels.emulate.build import DeviceCode, compile_emulated
from tf_tvm_ops.kernels.manifest import (
    EMULATED,
    FILE_NAME,
    ImageEntry,
    KernelEntry,
    Manifest,
    file_sha256,
    image_name,
)
from tf_tvm_ops.kernels.problem import Problem
from tf_tvm_ops.kernels.schedules.cuda_rules import candidates
from tf_tvm_ops.tools.gpu_check.command import bundle as command

SCORES, VALUES, HALF = (
    Problem(1, 17, 8, rhs="k"),
    Problem(5, 6, 7),
    Problem(9, 8, 8, dtype="float16"),
)
GENERIC = Problem(None, None, None)
PROBLEMS = (SCORES, VALUES, HALF, GENERIC)
TABLE = """
rows:
- {site: scores, batch: [3, 2], m: 1, n: 17, k: 8, rhs: k}
- {site: values, batch: [3, 2], m: 5, n: 6, k: 7}
- {site: half, batch: [2], m: 9, n: 8, k: 8, dtype: float16}
- {site: not in the pack, batch: [2], m: 4, n: 4, k: 4}
"""
OURS = ("ours", "ours fused")
QUICK = ("--rounds", "3", "--launches", "4")


@dataclass(frozen=True)
class Made:
    """What the tests share.

    Attributes
    ----------
    folder
        Of the libraries that stand for a GPU's.
    pack, bundle
        Folders.
    python
        An interpreter with NumPy alone.
    symbols
        Of the kernels, in the order of PROBLEMS.
    """

    folder: Path
    pack: Path
    bundle: Path
    python: Path
    symbols: tuple[str, ...]


def write_pack(pack: Path, image: Path, built: list, target: str) -> None:
    """A pack whose image is also there for another GPU."""
    sha256 = file_sha256(image)
    entries = tuple(
        KernelEntry(b.kernel.symbol, b.kernel.problem, b.kernel.choice.to_json(), 0) for b in built
    )
    images = []
    for name in ("cuda:sm_80", target, "cpu:x86-64-v3"):
        file = image_name(name, sha256)
        shutil.copy(image, pack / file)
        size = image.stat().st_size
        images.append(ImageEntry(name, file, size, sha256, entries, EMULATED))
    manifest = Manifest(KERNEL_ABI, {"tests": "1"}, tuple(images))
    (pack / FILE_NAME).write_text(manifest.dump())


def lonely_python(folder: Path) -> Path:
    """An interpreter that can import NumPy and nothing else that is installed."""
    venv.create(folder, with_pip=False, symlinks=True)
    (site,) = folder.glob("lib/python*/site-packages")
    for name in ("numpy", "numpy.libs"):
        source = Path(np.__file__).parents[1] / name
        if source.exists():
            (site / name).symlink_to(source)
    return folder / "bin" / "python"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    folder = tmp_path_factory.mktemp("gpu")
    fake_libraries(folder)
    built = [
        build.build_kernel(CudaKernel(problem, next(candidates(problem, NEW))), NEW, folder)
        for problem in PROBLEMS
    ]
    modules = [b.module.read_bytes() for b in built]
    link_image([b.lowered.host for b in built], modules, folder / "image.so")
    code = [DeviceCode(f"{b.kernel.symbol}_kernel", b.lowered.cuda.read_text()) for b in built]
    compile_emulated(code, folder / "kernels.so", sanitize=False)
    pack = folder / "pack"
    pack.mkdir()
    write_pack(pack, folder / "image.so", built, NEW.name)
    (folder / "translation.yaml").write_text(TABLE)
    made = Made(
        folder,
        pack,
        folder / "bundle",
        lonely_python(folder / "python"),
        tuple(b.kernel.symbol for b in built),
    )
    output = make(made, made.bundle)
    assert "3 products to time" in output
    return made


def make(made: Made, out: Path, pack: Path | None = None) -> str:
    table = made.folder / "translation.yaml"
    arguments = [str(pack or made.pack), "--out", str(out), "--shapes", str(table)]
    result = CliRunner().invoke(command, arguments)
    assert result.exit_code == 0, result.output
    return result.output


@dataclass(frozen=True)
class Ran:
    """What a run of the bundle left."""

    status: int
    output: str
    errors: str
    results: dict[str, Any]

    def faults(self) -> list[str]:
        return [fault for fault in self.results["checks"].values() if fault]


def run(
    made: Made, out: Path, *arguments: str, bundle: Path | None = None, **environment: str
) -> Ran:
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "LD_"))}
    libraries = {
        "LD_LIBRARY_PATH": str(made.folder),
        "FAKE_DRIVER_KERNELS": str(made.folder / "kernels.so"),
    }
    done = subprocess.run(
        [made.python, (bundle or made.bundle) / "run.py", "--out", out, *QUICK, *arguments],
        env={**kept, **libraries, **environment},
        cwd=made.folder,
        capture_output=True,
        text=True,
        check=False,
    )
    path = out / "results.json"
    results = json.loads(path.read_text()) if path.exists() else {}
    return Ran(done.returncode, done.stdout, done.stderr, results)


def faulty(made: Made, fault: str, problem: Problem) -> str:
    return f"{fault}:{made.symbols[PROBLEMS.index(problem)]}_kernel"


def test_python_of_the_test_has_numpy_alone(made):
    for module in ("tvm", "tvm_ffi", "tensorflow", "torch", "tf_tvm_ops", "yaml", "click"):
        done = subprocess.run(
            [made.python, "-I", "-c", f"import {module}"],
            capture_output=True,
            text=True,
            check=False,
        )
        assert "ModuleNotFoundError" in done.stderr, module


def test_right_kernels_are_checked_and_timed(made, tmp_path):
    ran = run(made, tmp_path)
    assert ran.status == 0, ran.errors
    assert ran.results["checks"] == {f"{NEW.name}/{symbol}": "" for symbol in made.symbols}
    assert ran.results["machine"]["card"]["name"] == "Emulated GPU"
    assert ran.results["pack"]["ignored"] == ["cuda:sm_80"]
    assert "PyTorch" in ran.results["skipped_parts"]["cuBLAS"]
    (part,) = {record["part"] for record in ran.results["measurements"]}
    assert part == "ours"
    assert len(ran.results["measurements"]) == 3
    for record in ran.results["measurements"]:
        assert record["faults"] == {}
        found = {(m["way"], m["cache"]) for m in record["measurements"]}
        assert found == {(way, cache) for way in OURS for cache in ("hot", "cold")}
        for measurement in record["measurements"]:
            assert 0 < measurement["low_us"] <= measurement["median_us"] <= measurement["high_us"]
            cold = measurement["cache"] == "cold"
            # Twice the cache of the fake GPU.
            assert (measurement["bytes"] >= 2 << 16) == cold
            assert (measurement["sets"] > 1) == cold
            assert measurement["launches"] >= measurement["sets"]
    assert "4 right, 0 wrong, 0 not reached" in ran.output
    text = (tmp_path / "results.txt").read_text()
    assert "[3,2] 1x8 · 17x8ᵀ float32 mask" in text
    assert "[3,2] 5x7 · 7x6 float32 transpose" in text


def test_peers_are_compared_where_there_is_torch(made, tmp_path):
    stub = tmp_path / "stub"
    stub.mkdir()
    shutil.copy(Path(__file__).with_name("fake_torch.py"), stub / "torch.py")
    ran = run(made, tmp_path, PYTHONPATH=str(stub))
    assert ran.status == 0, ran.errors
    found = {}
    for record in ran.results["measurements"]:
        assert record["faults"] == {}
        found.setdefault(record["part"], set()).update(m["way"] for m in record["measurements"])
    assert found == {
        "cuBLAS": {"ours", "ours fused", "cuBLAS", "cuBLAS + passes"},
        "compile": {"ours fused", "torch.compile"},
    }
    assert "Triton" in ran.results["skipped_parts"]["Triton"]
    means = {
        (m["ours"], m["peer"], m["cache"]): m
        for m in ran.results["geometric_means"]
        if not m["table"]
    }
    for pair in (("ours fused", "cuBLAS + passes", "hot"), ("ours", "cuBLAS", "cold")):
        assert means[pair]["cases"] == 3
    verdicts = [mark["verdict"] for mark in ran.results["marks"]]
    assert verdicts[0] == "not measured", "the headline is not in the table"
    assert not {"not measured"} & set(verdicts[1:])


@pytest.mark.parametrize(
    ("fault", "words"), [("wrong", "results wrong"), ("error", "CUBLAS_STATUS_FAKE")]
)
def test_peers_that_are_wrong_are_not_timed(made, tmp_path, fault, words):
    stub = tmp_path / "stub"
    stub.mkdir()
    shutil.copy(Path(__file__).with_name("fake_torch.py"), stub / "torch.py")
    ran = run(made, tmp_path, PYTHONPATH=str(stub), FAKE_TORCH_FAULT=fault)
    assert ran.status == 0, ran.errors
    for record in ran.results["measurements"]:
        assert {m["way"] for m in record["measurements"]} <= set(OURS)
        assert record["measurements"], "ours are timed nevertheless"
        assert record["faults"]
        assert all(words in fault for fault in record["faults"].values())


def test_wrong_kernel_is_caught_and_not_timed(made, tmp_path):
    ran = run(made, tmp_path, FAKE_DRIVER_FAULTS=faulty(made, "skip", VALUES))
    assert ran.status == 1
    (fault,) = ran.faults()
    assert "90 of 90 results wrong" in fault
    assert "WRONG" in ran.output
    timed = {record["symbol"] for record in ran.results["measurements"]}
    assert timed == {made.symbols[0], made.symbols[2]}
    assert any("its kernel is wrong" in reason for reason in ran.results["skipped_parts"].values())


def test_kernel_that_is_wrong_when_it_is_timed_has_no_time(made, tmp_path):
    """Though it was right when it was checked: what is there from before does not count."""
    ran = run(made, tmp_path, FAKE_DRIVER_FAULTS=faulty(made, "stale", VALUES))
    assert set(ran.results["checks"].values()) == {""}
    by_symbol = {record["symbol"]: record for record in ran.results["measurements"]}
    stale = by_symbol.pop(made.symbols[1])
    assert stale["measurements"] == []
    assert set(stale["faults"]) == set(OURS)
    assert all("results wrong" in fault for fault in stale["faults"].values())
    assert all(record["measurements"] for record in by_symbol.values())
    assert "no time of ours fused for [3,2] 5x7" in ran.output


@pytest.mark.parametrize(
    ("fault", "words"),
    [("illegal", "failed with 700"), ("abort", "ended the process that ran it (signal 6)")],
)
def test_rest_goes_on_after_a_kernel_that_ends_the_process(made, tmp_path, fault, words):
    ran = run(made, tmp_path, "--check-only", FAKE_DRIVER_FAULTS=faulty(made, fault, VALUES))
    assert ran.status == 1
    assert len(ran.results["checks"]) == len(PROBLEMS)
    (found,) = ran.faults()
    assert words in found
    assert ran.results["parts"]["check"]["workers"] == 2
    assert ran.results["parts"]["check"]["not_reached"] == []


def test_kernel_that_hangs_is_stopped(made, tmp_path):
    ran = run(
        made,
        tmp_path,
        *("--check-only", "--item-seconds", "2"),
        FAKE_DRIVER_FAULTS=faulty(made, "hang", SCORES),
    )
    assert ran.status == 1
    assert ran.faults() == ["did not end within 2 s"]
    assert len(ran.results["checks"]) == len(PROBLEMS)


def test_what_the_deadline_leaves_over_is_named(made, tmp_path):
    ran = run(made, tmp_path, "--seconds", "0.01")
    assert ran.status == 0
    assert ran.results["checks"] == {}
    left = ran.results["parts"]["check"]["not_reached"]
    assert left == [f"{NEW.name}/{symbol}" for symbol in made.symbols]
    assert ran.results["parts"]["ours"]["not_reached"] == ["0", "1", "2"]
    assert "0 right, 0 wrong, 4 not reached" in ran.output
    for symbol in made.symbols:
        assert f"not reached: {NEW.name}/{symbol}" in ran.output


def test_damaged_image_is_a_fault_of_its_kernels(made, tmp_path):
    bundle = tmp_path / "damaged"
    shutil.copytree(made.bundle, bundle)
    for image in (bundle / "pack").glob("*sm-90*.so"):
        content = bytearray(image.read_bytes())
        content[-1] ^= 1
        image.write_bytes(content)
    ran = run(made, tmp_path, "--check-only", bundle=bundle)
    assert ran.status == 1
    assert len(ran.faults()) == len(PROBLEMS)
    assert all("checksum" in fault for fault in ran.faults())


@pytest.mark.parametrize(
    ("library", "words"),
    [
        ("libcuda.so.1", "no CUDA driver"),
        ("libcudart.so.13", "no libcudart.so.13, which TVM's CUDA runtime needs"),
    ],
)
def test_missing_library_is_one_line(made, tmp_path, library, words):
    for name in {"libcuda.so.1", "libcudart.so.13"} - {library}:
        shutil.copy(made.folder / name, tmp_path)
    (tmp_path / library).write_text("no library")
    ran = run(made, tmp_path, LD_LIBRARY_PATH=str(tmp_path))
    assert (ran.status, ran.results) == (1, {})
    (line,) = ran.errors.splitlines()
    assert words in line


def test_cuda_runtime_is_found_in_python_packages(made, tmp_path):
    """Where PyTorch brings it, which the loader does not know of."""
    driver = tmp_path / "driver"
    driver.mkdir()
    shutil.copy(made.folder / "libcuda.so.1", driver)
    (driver / "libcudart.so.13").write_text("no library")
    package = tmp_path / "packages" / "nvidia" / "cu13" / "lib"
    package.mkdir(parents=True)
    shutil.copy(made.folder / "libcudart.so.13", package)
    ran = run(
        made,
        tmp_path,
        "--check-only",
        LD_LIBRARY_PATH=str(driver),
        PYTHONPATH=str(tmp_path / "packages"),
    )
    assert ran.status == 0, ran.errors


def test_gpu_that_runs_no_image(made, tmp_path):
    ran = run(made, tmp_path, FAKE_DRIVER_CAPABILITY="75")
    assert ran.status == 1
    assert "compute capability 7.5 and runs none of cuda:sm_80, cuda:sm_90" in ran.errors


def files(folder: Path) -> set[Path]:
    found = {p.relative_to(folder) for p in folder.rglob("*") if p.is_file()}
    return {path for path in found if "__pycache__" not in path.parts}


def test_archive_holds_the_bundle(made, tmp_path):
    make(made, tmp_path / "carried.tar.gz")
    with tarfile.open(tmp_path / "carried.tar.gz") as archive:
        archive.extractall(tmp_path, filter="data")
    assert files(tmp_path / "carried") == files(made.bundle)
    ran = run(made, tmp_path, "--check-only", bundle=tmp_path / "carried")
    assert ran.status == 0, ran.errors


def test_images_for_cpus_stay_behind(made):
    assert not list((made.bundle / "pack").glob("cpu*"))
    assert len(list((made.bundle / "pack").glob("cuda*.so"))) == 2


def test_what_travels_is_python_3_9(made):
    import ast

    modules = list(made.bundle.rglob("*.py"))
    assert len(modules) > 20
    for path in modules:
        tree = ast.parse(path.read_text(), feature_version=(3, 9))
        future = any(
            isinstance(node, ast.ImportFrom) and node.module == "__future__" for node in tree.body
        )
        assert future or path.name in ("__init__.py", "run.py"), f"{path}: annotations would run"


def test_pack_without_gpu_images_is_refused(made, tmp_path):
    pack = tmp_path / "cpu"
    shutil.copytree(made.pack, pack)
    manifest = json.loads((pack / FILE_NAME).read_text())
    manifest["images"] = [i for i in manifest["images"] if i["target"].startswith("cpu")]
    (pack / FILE_NAME).write_text(json.dumps(manifest))
    result = CliRunner().invoke(command, [str(pack), "--out", str(tmp_path / "out")])
    assert result.exit_code == 1
    assert "has no image for GPUs (it has cpu:x86-64-v3)" in result.output
    assert not (tmp_path / "out").exists()


def test_bundle_is_not_overwritten(made):
    result = CliRunner().invoke(command, [str(made.pack), "--out", str(made.bundle)])
    assert result.exit_code == 1
    assert "is there already" in result.output
