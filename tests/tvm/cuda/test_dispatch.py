"""GPU kernels through the dispatcher: cc/dispatch/cuda_launch.cc and cuda_runtime.cc.

Below it are TVM's own CUDA runtime and a driver that is a fake, in a process of its own.
"""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.tvm.cuda.dispatch_run import OLD_STREAM
from tests.tvm.cuda.driver import RUNTIME, Machine, make_machine
from tests.unit.fake_packs import GENERIC, V3, edit_manifest, write_pack
from tf_tvm_ops.kernels.problem import Problem

SM_90, PTX = "cuda:sm_90", "cuda:compute_80"
FIXED = Problem(17, 17, 64)
PROBLEMS = (
    FIXED,
    *(Problem(None, None, None, lhs, rhs) for lhs, rhs in (("k", "n"), ("k", "k"), ("m", "n"))),
    Problem(None, None, None, dtype="float16"),
)


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Machine:
    folder = tmp_path_factory.mktemp("machine")
    return make_machine(folder, {SM_90: PROBLEMS, PTX: (FIXED,)})


def run(machine: Machine, function: str, **environment: str) -> tuple[Any, list[str]]:
    """What it printed, and the messages of this package."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.tvm.cuda.dispatch_run", machine.pack, function],
        env={**os.environ, **machine.environment(), **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    messages = [line for line in done.stderr.splitlines() if line.startswith("tf_tvm_ops:")]
    return json.loads(done.stdout), messages


def test_products_are_right(machine: Machine) -> None:
    symbols, messages = run(machine, "products")
    assert [target for _, target in symbols] == [SM_90] * 5
    assert ["generic" in symbol for symbol, _ in symbols] == [False, True, True, True, True]
    assert messages == []


def test_launches_go_to_device_and_stream_and_leave_no_trace(machine: Machine) -> None:
    """A context is the number of its device plus one."""
    found, _ = run(machine, "state")
    assert found == [
        {"device": 1, "stream": 0xB, "context": None, "old_stream": OLD_STREAM},
        {"device": 0, "stream": 0xA, "context": 2, "old_stream": OLD_STREAM},
        {"device": 0, "stream": 0xC, "context": 1, "old_stream": OLD_STREAM},
        {"device": 1, "stream": 0xD, "context": 1, "old_stream": OLD_STREAM},
    ]


def test_image_is_that_of_the_compute_capability(machine: Machine) -> None:
    result, messages = run(machine, "images")
    assert result["found"] == {"(7, 5)": None, "(8, 9)": PTX, "(9, 0)": SM_90, "(12, 0)": PTX}
    assert result["ptx"] == [0, 1]
    assert result["refused"].endswith("no_kernel")
    (message,) = messages
    assert "no kernels for a GPU of compute capability 7.5, only for" in message
    assert "--target cuda:sm_75" in message


def test_pack_for_cpus_and_gpus_serves_both(machine: Machine, tmp_path: Path) -> None:
    pack = write_pack(tmp_path / "mixed", {V3: GENERIC})
    images = json.loads((machine.pack / "manifest.json").read_text())["images"]
    for image in images:
        shutil.copy(machine.pack / image["file"], pack)
    edit_manifest(pack, lambda manifest: manifest["images"].extend(images))
    result, messages = run(dataclasses.replace(machine, pack=pack), "both")
    assert result == {
        "targets": [V3, SM_90, PTX],
        "ignored": [],
        "kernels": len(PROBLEMS) + len(GENERIC) - 3,
        "on_cpu": V3,
        "on_gpu": SM_90,
    }
    assert messages == []


def test_threads(machine: Machine) -> None:
    result, messages = run(machine, "threads")
    assert result == {"failures": [], "launches": 32 * 5}
    assert messages == []


def test_wrong_places_are_errors(machine: Machine) -> None:
    result, _ = run(machine, "wrong_places")
    absent, too_many, negative, empty = result["errors"]
    assert absent == "the fake failed"
    assert too_many == "GPU 32: expected one of 0 to 31"
    assert negative == "GPU -1: expected one of 0 to 31"
    assert "k = 0" in empty
    assert result["context"] is None


def test_module_that_the_driver_refuses_is_an_error(machine: Machine) -> None:
    result, _ = run(machine, "error", FAKE_DRIVER_REFUSES_MODULES="0")
    assert len(result["errors"]) == 2
    for error in result["errors"]:
        assert error.startswith("RuntimeError: kernel bmm_")
        assert "CUDA_ERROR_INVALID_IMAGE" in error


def without_cudart(machine: Machine, folder: Path) -> dict[str, str]:
    """The environment of a machine with a driver and without the CUDA runtime.

    A file in its place keeps one that is installed from being found.
    """
    shutil.copy(machine.folder / "libcuda.so.1", folder)
    (folder / "libcudart.so.13").write_text("no library")
    return {"LD_LIBRARY_PATH": str(folder)}


def assert_one_warning(result: Any, messages: list[str], cause: str) -> None:
    """All calls are refused, for the image, and one line says why and what to do."""
    assert cause in result["problem"]
    assert [error.startswith("LookupError") for error in result["errors"]] == [True, True]
    assert all(error.endswith("image") for error in result["errors"])
    (message,) = messages
    assert message.startswith("tf_tvm_ops: warning: kernels for GPUs are not used")
    assert cause in message
    assert "TF_TVM_OPS_CUDA_RUNTIME" in message


def test_missing_cuda_runtime(machine: Machine, tmp_path: Path) -> None:
    environment = without_cudart(machine, tmp_path)
    result, messages = run(machine, "error", **environment)
    assert_one_warning(result, messages, "libcudart.so.13: file too short")
    assert "pip install nvidia-cuda-runtime" in messages[0]


def test_libraries_are_found_where_the_variable_says(machine: Machine, tmp_path: Path) -> None:
    environment = without_cudart(machine, tmp_path)
    folders = f"/absent:{machine.folder}"
    symbols, messages = run(machine, "products", TF_TVM_OPS_CUDA_RUNTIME=folders, **environment)
    assert len(symbols) == 5
    assert messages == []


def test_damaged_tvm_runtime(machine: Machine, tmp_path: Path) -> None:
    (tmp_path / RUNTIME.name).write_text("no library")
    result, messages = run(machine, "error", TF_TVM_OPS_CUDA_RUNTIME=str(tmp_path))
    assert_one_warning(result, messages, f"{tmp_path}/{RUNTIME.name}")


def test_driver_that_is_too_old(machine: Machine) -> None:
    result, messages = run(machine, "error", FAKE_DRIVER_FAILURE="35")
    assert_one_warning(result, messages, "CUDA cannot be used: the fake failed")


def test_no_driver_is_a_refused_pack(machine: Machine, tmp_path: Path) -> None:
    """One clear error, when the pack is loaded."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.tvm.cuda.dispatch_run", machine.pack, "error"],
        env={**os.environ, **machine.environment(), "LD_LIBRARY_PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "none of its images holds a kernel for this machine" in done.stderr
    assert "this machine has no NVIDIA driver (libcuda.so.1)" in done.stderr
