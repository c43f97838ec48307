"""From schedule choices to images: compile each kernel to an object file, link them by target.

Object files are kept in a cache, named by a digest of everything that their content depends on, so
that a kernel is compiled once however often packs are made.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import itertools
import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import tvm
import tvm_ffi
from tvm import tirx
from tvm.tirx.compilation_pipeline import (
    finalize_device_passes,
    finalize_host_passes,
    register_tir_pipeline,
)

from .compute import KERNEL_ABI, kernel_function
from .problem import Problem
from .schedules import Choice
from .targets import Target

_COMPILERS = ("c++", "g++", "clang++")
PART = ".part.o"
_PART_AGE_SECONDS = 3600.0
_NO_PART_OF_CODE = frozenset({"runtime", "tuning"})
"""Folders that choose, run and time kernels and have no say in their code."""


def _pipeline() -> tuple[Any, ...]:
    """What is left to do for TensorIR that is flat, vectorised and unrolled as it is emitted.

    TVM's default pipeline takes four times as long for the same machine code; it also narrows
    integers to 32 bits where it believes that they fit, and offsets here must not be.
    """
    passes = [
        tirx.transform.AnnotateEntryFunc(),
        tirx.transform.SplitHostDevice(),
        tirx.transform.MakePackedAPI(),
    ]
    return tvm.transform.Sequential(passes), finalize_host_passes, finalize_device_passes


_PIPELINE = "tf_tvm_ops"
register_tir_pipeline(_PIPELINE, _pipeline)


class BuildError(RuntimeError):
    """The compiler or linker failed; the message says what to do."""


@dataclass(frozen=True)
class Kernel:
    """A problem and how it is computed on a target."""

    problem: Problem
    choice: Choice
    target: Target

    @property
    def symbol(self) -> str:
        """Its name, made from problem and config alone."""
        return self.choice.symbol(self.problem)

    @property
    def workspace_bytes(self) -> int:
        """Scratch memory it needs in each thread."""
        rule, config = self.choice.rule, self.choice.config
        return rule.workspace_bytes(self.problem, self.target, config)


@cache
def versions() -> dict[str, str]:
    """Versions of what a kernel's code depends on."""
    packages = {name: importlib.metadata.version(name) for name in ("apache-tvm", "apache-tvm-ffi")}
    return packages | {"llvm": str(tvm.target.codegen.llvm_version_major())}


@cache
def sources_digest(suffixes: tuple[str, ...] = ("*.py",)) -> str:
    """Digest of the code that turns choices into TensorIR, and of all near it that might."""
    digest = hashlib.sha256()
    folder = Path(__file__).parent
    for path in sorted(itertools.chain(*(folder.rglob(suffix) for suffix in suffixes))):
        if path.relative_to(folder).parts[0] not in _NO_PART_OF_CODE:
            digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


def object_key(kernel: Kernel) -> str:
    """Digest of all that the kernel's object file depends on."""
    parts = [
        KERNEL_ABI,
        kernel.problem.to_json(),
        dict(kernel.choice.to_json()),
        kernel.target.name,
        versions(),
        sources_digest(),
    ]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def prepare_cache(folder: Path) -> None:
    """Make the cache's folder, and remove what runs that were killed left half-written in it.

    Raises
    ------
    BuildError
        If the folder cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
        for part in folder.glob(f"*/*{PART}"):
            if time.time() - part.stat().st_mtime > _PART_AGE_SECONDS:
                part.unlink(missing_ok=True)
    except OSError as error:
        raise cache_error(error) from error


def cache_error(error: OSError) -> BuildError:
    """What to say when the cache cannot be written."""
    return BuildError(
        f"{error.filename or 'the cache'}: cannot write: {error.strerror}; free some space or "
        "name another --cache"
    )


def object_path(folder: Path, kernel: Kernel) -> Path:
    """Where the cache keeps the kernel's object file."""
    key = object_key(kernel)
    return folder / key[:2] / f"{key}.o"


def tir(kernel: Kernel) -> tvm.tirx.PrimFunc:
    """The kernel as TensorIR."""
    rule, config = kernel.choice.rule, kernel.choice.config
    return kernel_function(
        kernel.problem,
        kernel.symbol,
        lambda matrix: rule.emit(matrix, kernel.target, config),
        lambda: rule.around(kernel.problem, kernel.target, config),
    )


def assembly(kernel: Kernel) -> str:
    """The kernel's machine code, as LLVM prints it."""
    return str(_compiled(kernel).inspect_source("asm"))


def _compiled(kernel: Kernel) -> tvm.runtime.Module:
    return compile_module(tir(kernel), kernel.symbol, kernel.target)


def compile_module(function: tvm.tirx.PrimFunc, symbol: str, target: Target) -> tvm.runtime.Module:
    """Machine code of a function, in this process."""
    fields: dict[str, Any] = {"kind": "llvm", "mcpu": target.mcpu}
    if target.llvm_features:
        fields["mattr"] = target.llvm_features.split(",")
    module = tvm.IRModule({symbol: function})
    return tvm.compile(module, tvm.target.Target(fields), tir_pipeline=_PIPELINE).mod


def compile_object(kernel: Kernel, path: Path) -> None:
    """Compile a kernel to an object file, which appears whole or not at all."""
    module = _compiled(kernel)
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, part = tempfile.mkstemp(suffix=PART, dir=path.parent)
    os.close(descriptor)
    try:
        module.write_to_file(part, "o")
        os.replace(part, path)
    except BaseException:
        Path(part).unlink(missing_ok=True)
        raise


def linker() -> str:
    """The C++ compiler that links images: ``$CXX``, or the first found of the usual ones.

    Raises
    ------
    BuildError
        If there is none.
    """
    wanted = os.environ.get("CXX")
    for name in (wanted,) if wanted else _COMPILERS:
        path = shutil.which(name)
        if path:
            return path
    tried = f"$CXX ({wanted})" if wanted else ", ".join(_COMPILERS)
    raise BuildError(f"no C++ compiler to link with: tried {tried}; install g++ or set CXX")


def linker_version(path: str) -> str:
    """Name and version of the linker, for the manifest."""
    result = subprocess.run([path, "-dumpfullversion"], capture_output=True, text=True, check=False)
    return f"{Path(path).name} {result.stdout.strip()}".strip()


def link_image(objects: Sequence[Path], image: Path, exports: Sequence[str] = ()) -> None:
    """Link object files to a shared library that exports the kernels and ``exports`` alone.

    Raises
    ------
    BuildError
        If the linker fails; the message ends in the last line it printed.
    """
    library = Path(tvm_ffi.libinfo.find_libtvm_ffi())
    with tempfile.TemporaryDirectory(dir=image.parent) as folder:
        script = Path(folder, "exports.map")
        names = "; ".join(("__tvm_ffi_bmm_*", *exports))
        script.write_text(f"{{ global: {names}; local: *; }};\n", encoding="ascii")
        arguments = Path(folder, "arguments")
        arguments.write_text("\n".join(f'"{path}"' for path in objects), encoding="utf-8")
        # The kernels report errors through libtvm_ffi: naming it as needed, and binding at load
        # time, lets a missing symbol fail the load instead of the first bad call.
        command = [
            *(linker(), "-shared", "-nostdlib", "-s", f"@{arguments}", "-o", str(image)),
            *(f"-L{library.parent}", "-Wl,--no-as-needed", f"-l:{library.name}"),
            *(f"-Wl,--version-script={script}", "-Wl,--build-id=none", "-Wl,--gc-sections"),
            *("-Wl,-z,now", "-Wl,-z,noexecstack"),
        ]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        lines = (result.stderr or result.stdout).strip().splitlines() or ["no message"]
        raise BuildError(f"{command[0]} failed to link {image.name}: {lines[-1]}")
