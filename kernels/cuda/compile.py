"""CUDA C++ to what an image embeds: compiled once for alike GPUs, assembled for each."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from .assembler import Resources, assemble
from .nvrtc import compile_ptx
from .targets import CudaTarget


@dataclass(frozen=True)
class Compiled:
    """Machine code for one architecture.

    Attributes
    ----------
    code_format
        ``"cubin"``, or ``"ptx"`` for a virtual architecture.
    code
        The code; PTX ends in a zero byte.
    resources
        What it takes; for PTX, what it takes on the architecture of that number.
    """

    code_format: str
    code: bytes
    resources: Resources


def compile_cuda(source: str, target: CudaTarget) -> Compiled:
    """Compile a kernel.

    The assembler spills a few registers for the sake of more blocks at a time. Where it does, it is
    asked again with one block promised to be enough.

    Parameters
    ----------
    source
        One kernel in CUDA C++, without what ``device.cuh`` has.
    target
        The architecture.

    Raises
    ------
    CompilerError
        If a compiler is not installed, or does not take the source or the architecture.
    """
    ptx, code, resources = _best(source, target)
    if target.is_virtual:
        return Compiled("ptx", ptx + b"\0", resources)
    return Compiled("cubin", code, resources)


def ptx_of(source: str, target: CudaTarget) -> str:
    """The PTX that is embedded, or was assembled: see :func:`compile_cuda`."""
    return _best(source, target)[0].decode()


def _best(source: str, target: CudaTarget) -> tuple[bytes, bytes, Resources]:
    """PTX, machine code and what it takes."""
    arch = f"sm_{target.capability}"
    ptx = _ptx(source, target.ptx_capability)
    code, resources = _assemble(ptx, arch)
    if resources.spills:
        other = _ptx(_LAUNCH_BOUNDS.sub(r"__launch_bounds__(\1, 1)", source), target.ptx_capability)
        other_code, other_resources = _assemble(other, arch)
        if not other_resources.spills:
            return other, other_code, other_resources
    return ptx, code, resources


# Whoever makes kernels for several architectures asks for them one after the other.
_ptx = lru_cache(maxsize=8)(compile_ptx)
_assemble = lru_cache(maxsize=16)(assemble)

_LAUNCH_BOUNDS = re.compile(r"__launch_bounds__\((\d+)\)")
