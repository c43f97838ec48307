"""A machine with two GPUs that are none: driver, CUDA runtime, and packs whose kernels they run."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import tvm

from tests.tvm.cuda.fake_cuda import fake_libraries
from tf_tvm_ops.kernels.compute import KERNEL_ABI
from tf_tvm_ops.kernels.cuda import build
from tf_tvm_ops.kernels.cuda.build import Built, CudaKernel
from tf_tvm_ops.kernels.cuda.image import link_image
from tf_tvm_ops.kernels.cuda.targets import CUDA_TARGETS
from tf_tvm_ops.kernels.emulate.build import DeviceCode, compile_emulated
from tf_tvm_ops.kernels.manifest import (
    EMULATED,
    ImageEntry,
    KernelEntry,
    Manifest,
    file_sha256,
    image_name,
)
from tf_tvm_ops.kernels.problem import Problem
from tf_tvm_ops.kernels.publish import publish
from tf_tvm_ops.kernels.schedules.cuda_rules import candidates

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
RUNTIME = Path(tvm.__file__).parent / "lib" / "libtvm_runtime_cuda.so"


@dataclass(frozen=True)
class Machine:
    """The fake libraries, and a pack for them.

    Attributes
    ----------
    folder
        Of libcuda and libcudart.
    pack
        Folder of the pack.
    kernels
        The library with the emulated kernels.
    """

    folder: Path
    pack: Path
    kernels: Path

    def environment(self) -> dict[str, str]:
        """What a process on it is started with."""
        return {
            "LD_LIBRARY_PATH": str(self.folder),
            "FAKE_DRIVER_KERNELS": str(self.kernels),
            "PYTHONPATH": os.pathsep.join([str(ROOT), *(p for p in sys.path if p)]),
        }


def make_machine(folder: Path, images: Mapping[str, Sequence[Problem]]) -> Machine:
    """Make one whose pack has these problems for each target."""
    fake_libraries(folder)
    built: list[Built] = []
    entries, files = [], {}
    for name, problems in images.items():
        target = CUDA_TARGETS[name]
        kernels = []
        for problem in problems:
            kernel = CudaKernel(problem, next(candidates(problem, target)))
            kernels.append(build.build_kernel(kernel, target, folder / "cache"))
        image = folder / f"{target.arch}.so"
        link_image(
            [b.lowered.host for b in kernels], [b.module.read_bytes() for b in kernels], image
        )
        entries.append(_entry(name, image, kernels))
        files[entries[-1].file] = image
        built += kernels
    code = {b.kernel.symbol: b.lowered.cuda.read_text() for b in built}
    emulated = folder / "kernels.so"
    compile_emulated(
        [DeviceCode(f"{symbol}_kernel", cuda) for symbol, cuda in code.items()],
        emulated,
        sanitize=False,
    )
    pack = folder / "pack"
    publish(pack, Manifest(KERNEL_ABI, {"tests": "1"}, tuple(entries)), files)
    return Machine(folder, pack, emulated)


def _entry(target: str, image: Path, kernels: Sequence[Built]) -> ImageEntry:
    sha256 = file_sha256(image)
    return ImageEntry(
        target,
        image_name(target, sha256),
        image.stat().st_size,
        sha256,
        tuple(
            KernelEntry(b.kernel.symbol, b.kernel.problem, b.kernel.choice.to_json(), 0)
            for b in kernels
        ),
        EMULATED,
    )
