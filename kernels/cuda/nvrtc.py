"""NVIDIA's run-time compiler, from its Python package: CUDA C++ in, PTX out.

It needs neither a GPU nor a driver nor an installed toolkit. Arithmetic is IEEE: no option that
flushes denormals or approximates is ever given.
"""

from __future__ import annotations

import ctypes
from functools import cache
from pathlib import Path

from .packages import CompilerError, Tool

TOOL = Tool("compiler", "nvidia-cuda-nvrtc-cu12", "cuda_nvrtc/lib/libnvrtc.so.12")

_OPTIONS = (
    "--std=c++17",
    "--minimal",  # no textures, no predeclared runtime types: they take longer than small kernels
    "--ftz=false",
    "--prec-div=true",
    "--prec-sqrt=true",
    "--fmad=true",
)


@cache
def device_header() -> str:
    """The text that every kernel is compiled after."""
    return Path(__file__).with_name("device.cuh").read_text(encoding="utf-8")


@cache
def _library() -> ctypes.CDLL:
    return ctypes.CDLL(str(TOOL.path()))


def compile_ptx(source: str, capability: int) -> bytes:
    """Compile a kernel.

    Parameters
    ----------
    source
        One kernel in CUDA C++, without what ``device.cuh`` has.
    capability
        Compute capability times ten: the least of the GPUs that the code is for.

    Returns
    -------
    bytes
        PTX, in text.

    Raises
    ------
    CompilerError
        If the compiler is not installed, or does not take the source or the architecture.
    """
    library = _library()
    arch = f"compute_{capability}"
    program = ctypes.c_void_p()
    text = (device_header() + source).encode()
    _check(library.nvrtcCreateProgram(ctypes.byref(program), text, b"kernel.cu", 0, None, None))
    try:
        options = [f"--gpu-architecture={arch}".encode(), *(o.encode() for o in _OPTIONS)]
        array = (ctypes.c_char_p * len(options))(*options)
        status = library.nvrtcCompileProgram(program, len(options), array)
        if status:
            log = _text(program, "ProgramLog").decode(errors="replace")
            lines = [line for line in log.splitlines() if "error" in line] or [f"status {status}"]
            raise CompilerError(f"the CUDA compiler failed for {arch}: {lines[0]}")
        return _text(program, "PTX")
    finally:
        library.nvrtcDestroyProgram(ctypes.byref(program))


def _text(program: ctypes.c_void_p, what: str) -> bytes:
    library = _library()
    size = ctypes.c_size_t()
    _check(getattr(library, f"nvrtcGet{what}Size")(program, ctypes.byref(size)))
    buffer = ctypes.create_string_buffer(size.value)
    _check(getattr(library, f"nvrtcGet{what}")(program, buffer))
    return buffer.raw[: size.value].rstrip(b"\0")


def _check(status: int) -> None:
    if status:
        raise CompilerError(f"the CUDA compiler failed with status {status}")
