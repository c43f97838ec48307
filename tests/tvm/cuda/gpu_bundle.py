"""A bundle of kernels that the emulator runs, and a Python that has NumPy alone to run it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import venv
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from click.testing import CliRunner

from tests.tvm.cuda.fake_cuda import fake_libraries
from tf_tvm_ops.kernels.compute import KERNEL_ABI
from tf_tvm_ops.kernels.cuda import build
from tf_tvm_ops.kernels.cuda.build import CudaKernel
from tf_tvm_ops.kernels.cuda.image import link_image
from tf_tvm_ops.kernels.cuda.targets import CUDA_TARGETS
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

NEW = CUDA_TARGETS["cuda:sm_90"]
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


def make_all(folder: Path) -> Made:
    """The kernels, the libraries, the pack, the interpreter and the bundle."""
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
