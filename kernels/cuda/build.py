"""From schedule choices to machine code, kept in a cache so that a kernel is compiled once."""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import tempfile
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from .. import build as cpu_build
from ..compute import KERNEL_ABI
from ..problem import Problem
from ..schedules.cuda_rule import CudaChoice
from ..schedules.cuda_rules import candidates
from . import assembler, nvrtc, source
from .assembler import Resources
from .compile import compile_cuda
from .function import kernel_function
from .targets import CudaTarget

MAX_TRIES = 8
"""Configs tried for a problem, the best first, until one does not spill."""

_SUFFIXES = ("*.py", "*.h", "*.cc", "*.cuh")


@dataclass(frozen=True)
class CudaKernel:
    """A problem and how it is computed. The code is the same for every architecture."""

    problem: Problem
    choice: CudaChoice

    @property
    def symbol(self) -> str:
        """Its name, made from problem and config alone."""
        return self.choice.symbol(self.problem)


@dataclass(frozen=True)
class Lowered:
    """A kernel before the CUDA compiler, in the cache.

    Attributes
    ----------
    kernel
        What it is.
    host, cuda, functions
        Files: see :class:`~tf_tvm_ops.kernels.cuda.source.Source`.
    """

    kernel: CudaKernel
    host: Path
    cuda: Path
    functions: Path


@dataclass(frozen=True)
class Built:
    """A kernel compiled for an architecture, in the cache.

    Attributes
    ----------
    lowered
        What was compiled.
    target
        For which architecture.
    module
        File: the CUDA module as an image embeds it.
    resources
        What a block takes.
    reused
        Whether it was there before.
    """

    lowered: Lowered
    target: CudaTarget
    module: Path
    resources: Resources
    reused: bool

    @property
    def kernel(self) -> CudaKernel:
        """What it is."""
        return self.lowered.kernel


@cache
def versions() -> dict[str, str]:
    """Versions of what a kernel's code depends on."""
    return cpu_build.versions() | {"nvrtc": nvrtc.TOOL.version(), "ptxas": assembler.TOOL.version()}


def sources_digest() -> str:
    """Digest of the code that makes kernels and checks them."""
    return cpu_build.sources_digest(_SUFFIXES)


def function(kernel: CudaKernel) -> Any:
    """The kernel as TensorIR."""
    rule, config = kernel.choice.rule, kernel.choice.config
    return kernel_function(
        kernel.problem,
        kernel.symbol,
        lambda m, n, k: rule.grid(m, n, k, config),
        lambda block: rule.emit(block, config),
    )


def lower(kernel: CudaKernel) -> source.Source:
    """The kernel in CUDA C++, and its launching function."""
    with tempfile.TemporaryDirectory(prefix="tf-tvm-ops-cuda-") as folder:
        return source.lower(function(kernel), Path(folder))


def build_best(problem: Problem, target: CudaTarget, folder: Path) -> Built:
    """Compile the config expected to be fastest among those that do not spill.

    If all of the first :data:`MAX_TRIES` spill, the one of them that spills least.

    Parameters
    ----------
    problem, target
        What is computed where.
    folder
        The cache.

    Raises
    ------
    ValueError
        If no rule applies.
    CompilerError
        If the CUDA compiler does not take the kernel.
    OSError
        If the cache cannot be written.
    """
    tried = []
    for choice in _first(problem, target.alike):
        built = build_kernel(CudaKernel(problem, choice), target, folder)
        if not built.resources.spills:
            return built
        tried.append(built)
    return min(tried, key=lambda b: (b.resources.spill_bytes, b.resources.stack_bytes))


# Whoever makes kernels for several architectures asks for them one after the other.
@lru_cache(maxsize=8)
def _first(problem: Problem, target: CudaTarget) -> tuple[CudaChoice, ...]:
    return tuple(itertools.islice(candidates(problem, target), MAX_TRIES))


def build_kernel(kernel: CudaKernel, target: CudaTarget, folder: Path) -> Built:
    """Compile a kernel, or take it from the cache: see :func:`build_best`."""
    base = _base(kernel, target.name, folder)
    record = base.with_suffix(".json")
    reused = record.exists()
    lowered = _lowered(kernel, folder)
    if not reused:
        compiled = compile_cuda(lowered.cuda.read_text(encoding="utf-8"), target)
        functions = lowered.functions.read_bytes()
        module = source.module_bytes(functions, compiled.code_format, compiled.code)
        write(base.with_suffix(".module"), module)
        # Last: it says that the other is there.
        write(record, json.dumps(compiled.resources.to_json()).encode())
    resources = Resources(**json.loads(record.read_text(encoding="utf-8")))
    return Built(lowered, target, base.with_suffix(".module"), resources, reused)


def passed_mark(kernel: CudaKernel, folder: Path) -> Path:
    """The file whose presence says that the kernel passed its check."""
    return _base(kernel, "passed", folder)


def _lowered(kernel: CudaKernel, folder: Path) -> Lowered:
    base = _base(kernel, "lowered", folder)
    paths = {name: base.with_suffix(f".{name}") for name in ("cuda", "functions", "host")}
    if not paths["host"].exists():
        code = lower(kernel)
        write(paths["cuda"], code.cuda.encode())
        write(paths["functions"], code.functions)
        write(paths["host"], code.host)
    return Lowered(kernel, **paths)


def _base(kernel: CudaKernel, what: str, folder: Path) -> Path:
    """Where the cache keeps something of a kernel."""
    parts = [
        KERNEL_ABI,
        kernel.problem.to_json(),
        dict(kernel.choice.to_json()),
        what,
        versions(),
        sources_digest(),
    ]
    key = hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()
    return folder / key[:2] / key


def write(path: Path, content: bytes) -> None:
    """Write a file of the cache, which appears whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, part = tempfile.mkstemp(suffix=cpu_build.PART, dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
        os.replace(part, path)
    except BaseException:
        Path(part).unlink(missing_ok=True)
        raise
