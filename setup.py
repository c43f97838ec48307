"""Builds the C++ parts and the default pack with CMake; everything else is in pyproject.toml."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
from importlib.util import find_spec
from pathlib import Path

from setuptools import Extension, find_packages, setup
from setuptools.command.build import build
from setuptools.command.build_ext import build_ext

ROOT = Path(__file__).parent.resolve()
BUILD = ROOT / "build"

# Folders at the top that are subpackages of tf_tvm_ops once installed.
SUBPACKAGES = ("kernels", "tools")

# What the generator compiles kernels for GPUs with, and their emulator.
CUDA_SOURCES = ("*.cuh", "*.h", "*.cc")


def package_dirs() -> dict[str, str]:
    """Every package by its import name, with its folder."""
    dirs = {"tf_tvm_ops": "tf_tvm_ops"}
    for top in SUBPACKAGES:
        for package in ("", *find_packages(top)):
            name = f"{top}.{package}".rstrip(".")
            dirs[f"tf_tvm_ops.{name}"] = name.replace(".", "/")
    return dirs


def python_executable() -> str:
    """Give this Python one name, whichever of its names it was started by.

    Another name would be another command line to CMake, which makes everything again.
    """
    name = f"python{sys.version_info.major}.{sys.version_info.minor}"
    named = Path(sys.executable).with_name(name)
    return str(named if named.exists() else sys.executable)


def tvm_ffi_lib_dir() -> str:
    """The folder of libtvm_ffi that a package installed in place will find at run time.

    In an isolated build the tvm_ffi at hand is gone afterwards, so that of the environment counts,
    whether or not it is there yet.
    """
    platlib = Path(sysconfig.get_path("platlib"))
    spec = find_spec("tvm_ffi")
    at_hand = Path(spec.origin).parent if spec and spec.origin else platlib / "tvm_ffi"
    isolated = "pip-build-env" in str(at_hand)
    return str((platlib / "tvm_ffi" if isolated else at_hand) / "lib")


def run(*command: str) -> None:
    """Run a command whose own messages say what went wrong."""
    # Not on standard output, which build front ends may read.
    status = subprocess.run(command, check=False, stdout=sys.stderr).returncode
    if status:
        raise SystemExit(
            f"setup.py: {' '.join(command)} failed with exit status {status}, see above"
        )


class Build(build):
    """Starts from an empty folder, so that a wheel has no files of earlier builds."""

    def run(self) -> None:
        """Run the build."""
        shutil.rmtree(self.build_lib, ignore_errors=True)
        super().run()


class BuildWithCMake(build_ext):
    """Configures, builds and installs into the package's folder, in place if asked to."""

    def run(self) -> None:
        """Configure, build, install."""
        package = "tf_tvm_ops"
        prefix = ROOT / package if self.inplace else Path(self.build_lib).resolve() / package
        build_dir = BUILD / f"cmake-{sys.implementation.cache_tag}"
        cmake = [python_executable(), "-m", "cmake"]
        self.configure(cmake, build_dir)
        jobs = os.environ.get("CMAKE_BUILD_PARALLEL_LEVEL") or str(os.cpu_count() or 1)
        run(*cmake, "--build", str(build_dir), "--parallel", jobs)
        run(*cmake, "--install", str(build_dir), "--prefix", str(prefix))

    def configure(self, cmake: list[str], build_dir: Path) -> None:
        """Configure, unless it was done with the same arguments before."""
        import ninja

        arguments = [
            "-G",
            "Ninja",
            f"-DCMAKE_MAKE_PROGRAM={Path(ninja.BIN_DIR) / 'ninja'}",
            f"-DPython_EXECUTABLE={python_executable()}",
            f"-DTF_TVM_OPS_KERNEL_CACHE={BUILD / 'kernel-cache'}",
            f"-DTF_TVM_OPS_EXTRA_RPATH={tvm_ffi_lib_dir() if self.inplace else ''}",
        ]
        of_user = os.environ.get("CMAKE_ARGS", "").split()
        specs = [find_spec(name) for name in ("tvm_ffi", "pybind11", "tensorflow")]
        wanted = {
            "arguments": [*cmake, *arguments, *of_user],
            "of_user": of_user,
            "found": [spec and spec.origin for spec in specs],
        }
        record = build_dir / "configured-with.json"
        done = json.loads(record.read_text(encoding="utf-8")) if record.is_file() else {}
        if done == wanted:
            return
        # Options that are no longer given would stay in force in the old build; the headers of
        # packages that have moved, too. Otherwise what is compiled is kept.
        same = done.get("of_user") == of_user and done.get("found") == wanted["found"]
        fresh = [] if same else ["--fresh"]
        run(*cmake, *fresh, "-S", str(ROOT), "-B", str(build_dir), *arguments, *of_user)
        record.write_text(json.dumps(wanted), encoding="utf-8")

    def get_outputs(self) -> list[str]:
        """CMake's own list is not needed: the whole folder is packed."""
        return []

    def get_output_mapping(self) -> dict[str, str]:
        """Nothing is copied after the build."""
        return {}


setup(
    packages=list(package_dirs()),
    package_dir=package_dirs(),
    package_data={
        "": ["*.yaml", "tables/*.yaml", "*.json", "*.md", "*.c", "*.pyi", "py.typed", *CUDA_SOURCES]
    },
    # What is built lies among the sources after an installation in place; CMake puts it where it
    # belongs in any other.
    include_package_data=False,
    # No sources: it only marks the wheel as one with compiled parts.
    ext_modules=[Extension("tf_tvm_ops._native", sources=[])],
    cmdclass={"build": Build, "build_ext": BuildWithCMake},
    zip_safe=False,
)
