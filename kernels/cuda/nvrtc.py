"""NVIDIA's run-time compiler, from its Python package: CUDA C++ in, machine code out.

It needs neither a GPU nor a driver nor an installed toolkit. Arithmetic is IEEE: no option that
flushes denormals or approximates is ever given.
"""

from __future__ import annotations

import ctypes
import importlib.metadata
import importlib.util
import re
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

from .targets import CudaTarget

PACKAGE = "nvidia-cuda-nvrtc-cu12"

_LIBRARY = "libnvrtc.so.12"

_OPTIONS = (
    "--std=c++17",
    "--minimal",  # no textures, no predeclared runtime types: they take longer than small kernels
    "--ftz=false",
    "--prec-div=true",
    "--prec-sqrt=true",
    "--fmad=true",
    "--ptxas-options=-v",  # resources, in the log
)


class CompilerError(RuntimeError):
    """The CUDA compiler is missing or refused its input; the message is one line."""


@dataclass(frozen=True)
class Resources:
    """What one block of a kernel takes of its multiprocessor.

    Attributes
    ----------
    registers
        Of a thread.
    shared_bytes
        Of a block.
    stack_bytes
        Of a thread, in memory: arrays that could not be kept in registers, and spills.
    spill_bytes
        Of a thread, written to memory for want of registers.
    """

    registers: int
    shared_bytes: int
    stack_bytes: int
    spill_bytes: int

    @property
    def spills(self) -> bool:
        """Whether the kernel keeps in memory what belongs into registers."""
        return self.stack_bytes > 0 or self.spill_bytes > 0

    def to_json(self) -> dict[str, int]:
        """As a manifest has it."""
        return asdict(self)


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


def version() -> str:
    """Version of the compiler's package.

    Raises
    ------
    CompilerError
        If it is not installed.
    """
    try:
        return importlib.metadata.version(PACKAGE)
    except importlib.metadata.PackageNotFoundError:
        raise CompilerError(_missing()) from None


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
        If the compiler is not installed, or does not take the source or the architecture.
    """
    text = device_header() + source
    arch = f"sm_{target.capability}"
    code, log = _run(text, arch, "CUBIN")
    resources = parse_log(log)
    if resources.spills:
        other = _LAUNCH_BOUNDS.sub(r"__launch_bounds__(\1, 1)", text)
        other_code, log = _run(other, arch, "CUBIN")
        if not parse_log(log).spills:
            text, code, resources = other, other_code, parse_log(log)
    if not target.is_virtual:
        return Compiled("cubin", code, resources)
    code, _ = _run(text, target.arch, "PTX")
    return Compiled("ptx", code, resources)


def ptx(source: str, target: CudaTarget) -> str:
    """A kernel in PTX: see :func:`compile_cuda`."""
    code, _ = _run(device_header() + source, f"compute_{target.capability}", "PTX")
    return code.rstrip(b"\0").decode()


@cache
def device_header() -> str:
    """The text that every kernel is compiled after."""
    return Path(__file__).with_name("device.cuh").read_text(encoding="utf-8")


_LAUNCH_BOUNDS = re.compile(r"__launch_bounds__\((\d+)\)")

_FIGURES = {
    "registers": r"Used (\d+) registers",
    "shared_bytes": r"(\d+) bytes smem",
    "stack_bytes": r"(\d+) bytes stack frame",
    "spill_bytes": r"(\d+) bytes spill stores",
}


def parse_log(log: str) -> Resources:
    """The figures that the assembler printed for the one kernel of a program.

    Raises
    ------
    CompilerError
        If they are not there.
    """
    found = {name: re.findall(pattern, log) for name, pattern in _FIGURES.items()}
    found["shared_bytes"] = found["shared_bytes"] or ["0"]  # not printed where there is none
    if any(len(numbers) != 1 for numbers in found.values()):
        raise CompilerError(f"no resource figures of one kernel in the compiler's log: {log!r}")
    return Resources(**{name: int(numbers[0]) for name, numbers in found.items()})


def _missing() -> str:
    return f"no CUDA compiler: pip install 'tf-tvm-ops[cuda-build]' brings {PACKAGE}"


@cache
def _library() -> ctypes.CDLL:
    spec = importlib.util.find_spec("nvidia")
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        path = Path(folder, "cuda_nvrtc", "lib", _LIBRARY)
        if path.exists():
            return ctypes.CDLL(str(path))
    raise CompilerError(_missing())


def _run(source: str, arch: str, what: str) -> tuple[bytes, str]:
    """The program as ``what`` ("CUBIN" or "PTX"), and the compiler's log."""
    library = _library()
    program = ctypes.c_void_p()
    _check(
        library.nvrtcCreateProgram(
            ctypes.byref(program), source.encode(), b"kernel.cu", 0, None, None
        )
    )
    try:
        options = [f"--gpu-architecture={arch}".encode(), *(o.encode() for o in _OPTIONS)]
        array = (ctypes.c_char_p * len(options))(*options)
        status = library.nvrtcCompileProgram(program, len(options), array)
        log = _text(program, "ProgramLog").rstrip(b"\0").decode(errors="replace")
        if status:
            lines = [line for line in log.splitlines() if "error" in line] or [f"status {status}"]
            raise CompilerError(f"the CUDA compiler failed for {arch}: {lines[0]}")
        return _text(program, what), log
    finally:
        library.nvrtcDestroyProgram(ctypes.byref(program))


def _text(program: ctypes.c_void_p, what: str) -> bytes:
    library = _library()
    size = ctypes.c_size_t()
    _check(getattr(library, f"nvrtcGet{what}Size")(program, ctypes.byref(size)))
    buffer = ctypes.create_string_buffer(size.value)
    _check(getattr(library, f"nvrtcGet{what}")(program, buffer))
    return buffer.raw[: size.value]


def _check(status: int) -> None:
    if status:
        raise CompilerError(f"the CUDA compiler failed with status {status}")
