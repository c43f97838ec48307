"""Another project's build makes its own pack: cmake/TfTvmOpsPack.cmake."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import tf_tvm_ops
from tf_tvm_ops.kernels import manifest as manifest_format
from tf_tvm_ops.kernels.problem import Problem

PROJECT = """
cmake_minimum_required(VERSION 3.25)
project(example LANGUAGES NONE)
find_package(Python 3.10 REQUIRED COMPONENTS Interpreter)
find_package(tf_tvm_ops REQUIRED)
tf_tvm_ops_add_pack(my_pack SHAPES shapes.yaml TARGETS cpu:x86-64-v3 OUTPUT my_pack CACHE cache)
"""


def build(folder: Path) -> str:
    cmake = [sys.executable, "-m", "cmake"]
    found = {"tf_tvm_ops_DIR": tf_tvm_ops.cmake_dir(), "Python_EXECUTABLE": sys.executable}
    options = [f"-D{name}={value}" for name, value in found.items()]
    output = ""
    for command in (["-S", ".", "-B", "build", *options], ["--build", "build"]):
        result = subprocess.run(
            [*cmake, *command], cwd=folder, capture_output=True, text=True, check=False
        )
        assert result.returncode == 0, result.stdout + result.stderr
        output += result.stdout
    return output


def test_pack_of_another_project(tmp_path: Path) -> None:
    (tmp_path / "CMakeLists.txt").write_text(PROJECT)
    shapes = tmp_path / "shapes.yaml"
    shapes.write_text("rows:\n- {site: a, m: 3, n: 5, k: 7}\n")
    assert "5 compiled, 0 reused" in build(tmp_path)
    (image,) = manifest_format.load(tmp_path / "build" / "my_pack").images
    assert Problem(3, 5, 7) in [kernel.problem for kernel in image.kernels]

    assert "compiled" not in build(tmp_path), "nothing changed, nothing is made"

    shapes.write_text("rows:\n- {site: a, m: 3, n: 5, k: 8}\n")
    assert "1 compiled, 4 reused" in build(tmp_path)
