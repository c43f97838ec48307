"""Compiles the CUDA C++ of kernels for the CPU."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import tvm_ffi

from .. import build

_HERE = Path(__file__).parent

_FLAGS = (
    *("-std=gnu++17", "-g0", "-fPIC", "-shared", "-fvisibility=hidden"),
    # Conversions of float16, and products and sums rounded once as on the GPU.
    *("-mavx2", "-mf16c", "-mfma", "-ffp-contract=fast"),
    # Generated code.
    *("-w", "-fno-strict-aliasing"),
)

_SANITIZE = (
    "-fsanitize=address",
    "-fsanitize-sections=shared_*",
    "-fsanitize=alignment",
    "-fno-sanitize-recover=alignment",
)


@dataclass(frozen=True)
class DeviceCode:
    """A kernel in CUDA C++.

    Attributes
    ----------
    name
        Of its function.
    cuda
        Its text, without what ``device.cuh`` has.
    """

    name: str
    cuda: str


def compile_emulated(
    kernels: Sequence[DeviceCode], library: Path, *, sanitize: bool, optimize: bool = True
) -> None:
    """Make a library that runs kernels on the CPU, a tvm-ffi function for each.

    Parameters
    ----------
    kernels
        Those of one library.
    library
        The shared library to write.
    sanitize
        Whether to check every access by AddressSanitizer, and alignment; the process that loads
        the library must have been started with it: see :mod:`.check`.
    optimize
        Whether kernels shall run fast; compiling them takes three times as long.

    Raises
    ------
    BuildError
        If the compiler does not take the code.
    """
    with tempfile.TemporaryDirectory(dir=library.parent) as folder:
        source = Path(folder, "kernels.cc")
        source.write_text(_program(kernels), encoding="utf-8")
        ffi = Path(tvm_ffi.libinfo.find_libtvm_ffi())
        command = [
            *(build.linker(), *_FLAGS, "-O1" if optimize else "-O0"),
            *(_SANITIZE if sanitize else ()),
            *(f"-I{_HERE}", *(f"-I{path}" for path in tvm_ffi.libinfo.include_paths())),
            *(str(source), str(_HERE / "machine.cc"), "-o", str(library)),
            *(f"-L{ffi.parent}", f"-l:{ffi.name}"),
        ]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        errors = [line for line in result.stderr.splitlines() if "error" in line]
        raise build.BuildError(
            f"{command[0]} failed to compile kernels for the emulator: "
            f"{(errors or result.stderr.strip().splitlines() or ['no message'])[0]}"
        )


def _program(kernels: Sequence[DeviceCode]) -> str:
    parts = ['#include "device.h"\n']
    for index, kernel in enumerate(kernels):
        # A section of its own tells each kernel's shared memory from that of the others.
        section = f"shared_{index}"
        parts += [
            "#undef __shared__\n",
            f'#define __shared__ static __attribute__((section("{section}")))\n',
            kernel.cuda,
            f"EMULATE_KERNEL({kernel.name}, {section})\n",
        ]
    return "".join(parts)
