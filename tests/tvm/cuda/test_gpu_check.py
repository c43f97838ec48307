"""The whole GPU check: a bundle is made, and run by a Python that has NumPy alone.

TVM's CUDA runtime and ours are those of a GPU; the driver below them is a fake, and kernels run on
the emulator.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.tvm.cuda.conftest import NEW
from tests.tvm.cuda.gpu_bundle import OURS, make, run
from tf_tvm_ops.kernels.manifest import FILE_NAME
from tf_tvm_ops.tools.gpu_check.command import bundle as command


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
