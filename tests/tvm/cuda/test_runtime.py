"""Images as TVM's own CUDA runtime loads and launches them; the driver below it is a fake.

So the form of embedded modules, the arguments that launching functions pass, and the stream are
those that a GPU would see.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.tvm.cuda.conftest import NEW
from tests.tvm.cuda.driver import ROOT, RUNTIME
from tests.tvm.cuda.fake_cuda import fake_libraries
from tf_tvm_ops.kernels.cuda import build
from tf_tvm_ops.kernels.cuda.build import CudaKernel
from tf_tvm_ops.kernels.cuda.image import link_image
from tf_tvm_ops.kernels.emulate.build import DeviceCode, compile_emulated
from tf_tvm_ops.kernels.problem import Problem
from tf_tvm_ops.kernels.schedules.cuda_rules import candidates

PROBLEMS = [
    Problem(1, 17, 40, rhs="k"),
    Problem(18, 9, 16, dtype="float16"),
    Problem(None, None, None, dtype="float64"),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("driver")
    fake_libraries(folder)
    return folder


def run(folder: Path, entries: list) -> subprocess.CompletedProcess:
    environment = {
        **os.environ,
        "LD_LIBRARY_PATH": str(folder),
        "FAKE_DRIVER_KERNELS": str(folder / "kernels.so"),
        "PYTHONPATH": os.pathsep.join([str(ROOT), *(p for p in sys.path if p)]),
    }
    command = [sys.executable, "-m", "tests.tvm.cuda.driver_run", folder, RUNTIME]
    return subprocess.run(
        [*command, json.dumps(entries)],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


def test_kernels_are_right_through_tvms_runtime(folder, tmp_path):
    built = []
    for problem in PROBLEMS:
        choice = next(candidates(problem, NEW))
        built.append(build.build_kernel(CudaKernel(problem, choice), NEW, tmp_path))
    link_image(
        [b.lowered.host for b in built],
        [b.module.read_bytes() for b in built],
        folder / "image.so",
    )
    code = [DeviceCode(f"{b.kernel.symbol}_kernel", b.lowered.cuda.read_text()) for b in built]
    compile_emulated(code, folder / "kernels.so", sanitize=False)
    done = run(folder, [[b.kernel.symbol, b.kernel.problem.to_json()] for b in built])
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["faults"] == [""] * len(PROBLEMS)
    assert found["modules"] == [0, 1, 2, 3], "a kernel's module is loaded when it is first called"
    assert found["stream"] == 0x5EED
    assert found["launches"] >= 6 * len(PROBLEMS)


def test_image_without_the_cuda_runtime_is_an_error(folder, tmp_path):
    """Not a crash: the first sentence that a user without it would see."""
    choice = next(candidates(PROBLEMS[0], NEW))
    built = build.build_kernel(CudaKernel(PROBLEMS[0], choice), NEW, tmp_path)
    image = tmp_path / "image.so"
    link_image([built.lowered.host], [built.module.read_bytes()], image)
    program = "import sys, tvm_ffi; tvm_ffi.load_module(sys.argv[1])"
    done = subprocess.run(
        [sys.executable, "-c", program, image], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "ffi.Module.load_from_bytes.cuda" in done.stderr
