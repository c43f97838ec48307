"""From TensorIR to CUDA C++ for the kernel and an object file for the function that launches it."""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tvm
from tvm import tirx
from tvm.tirx.build import split_host_device_mods
from tvm.tirx.compilation_pipeline import finalize_host_passes

HOST = {"kind": "llvm", "mtriple": "x86_64-linux-gnu", "mcpu": "x86-64", "opt-level": 1}
"""The machine of the launching function: any x86-64. A third of the time to make a kernel's code
went into optimising it at level 3; what a launch gains by that was not measured."""

_DEVICE = {"kind": "cuda", "arch": "sm_80"}  # CUDA C++ is the same for all

_FORCE_FALLBACK = "TVM_COMPILE_FORCE_FALLBACK"


class FormatError(RuntimeError):
    """TVM wrote a module otherwise than this version expects."""


@dataclass(frozen=True)
class Source:
    """A kernel's code before the CUDA compiler.

    Attributes
    ----------
    cuda
        The kernel in CUDA C++, without what ``device.cuh`` has.
    functions
        TVM's table of the kernel's arguments, as its runtime reads it.
    host
        Object code of the launching function.
    """

    cuda: str
    functions: bytes
    host: bytes


def lower(function: Any, folder: Path) -> Source:
    """Split a PrimFunc into what runs on the GPU and what launches it.

    Parameters
    ----------
    function
        Of :func:`~tf_tvm_ops.kernels.cuda.function.kernel_function`.
    folder
        For temporary files.

    Raises
    ------
    FormatError
        If TVM's serialised form of a module is not the one known here.
    """
    bound = tvm.target.Target(_DEVICE, host=HOST)
    module = tvm.IRModule({function.attrs["global_symbol"]: function})
    module = tvm.transform.Sequential(
        [
            tirx.transform.BindTarget(bound),
            tirx.transform.AnnotateEntryFunc(),
            tirx.transform.SplitHostDevice(),
            tirx.transform.MakePackedAPI(),
        ]
    )(module)
    host, devices = split_host_device_mods(module)
    ((device_target, device),) = devices.items()
    device = tirx.transform.LowerIntrin()(device)
    with _no_compiler():
        built = tvm.get_global_func("target.build.cuda")(device, device_target)
    code = built.inspect_source()
    compiled = tvm.get_global_func("target.build.llvm")(
        finalize_host_passes()(host), tvm.target.Target(HOST)
    )
    path = folder / "host.o"
    compiled.write_to_file(str(path), "o")
    packed = tvm.get_global_func("runtime.ModulePackImportsToTensor")(built).numpy().tobytes()
    functions = _function_table(packed, code.encode())
    return Source(_strip_header(code), functions, path.read_bytes())


@contextmanager
def _no_compiler() -> Iterator[None]:
    """TVM would compile by its own callback where it finds a driver, with other arithmetic."""
    before = os.environ.get(_FORCE_FALLBACK)
    os.environ[_FORCE_FALLBACK] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[_FORCE_FALLBACK]
        else:
            os.environ[_FORCE_FALLBACK] = before


def _strip_header(code: str) -> str:
    """The kernel alone: TVM puts headers before it that need a CUDA toolkit."""
    found = re.search(r'^extern "C" __global__ .*\{$', code, re.MULTILINE)
    if found is None:
        raise FormatError("no kernel in TVM's CUDA code")
    return code[found.start() :]


def _function_table(packed: bytes, code: bytes) -> bytes:
    """The middle of a serialised CUDA module, which is [format][function table][code]."""
    head = (
        struct.pack("<Q", len(packed) - 8)
        + struct.pack("<QQQ", 2, 0, 0)  # import tree: one module
        + struct.pack("<Q", 0)  # without children
        + _string(b"cuda")
    )
    body = packed[len(head) + 8 :]
    start, end = _string(b"cuda"), _string(code)
    fits = packed.startswith(head) and body.startswith(start) and body.endswith(end)
    if not fits:
        raise FormatError(
            f"apache-tvm {tvm.__version__} stores CUDA modules in another form than tf_tvm_ops "
            "writes; install the version that pyproject.toml names"
        )
    return body[len(start) : -len(end)]


def _string(value: bytes) -> bytes:
    return struct.pack("<Q", len(value)) + value


def module_bytes(functions: bytes, code_format: str, code: bytes) -> bytes:
    """A CUDA module as TVM's runtime reads it.

    Parameters
    ----------
    functions
        Of :class:`Source`.
    code_format
        ``"cubin"`` or ``"ptx"``.
    code
        In that format.
    """
    return _string(code_format.encode()) + functions + _string(code)


def library_bytes(modules: list[bytes]) -> bytes:
    """What a shared library embeds to import CUDA modules when it is loaded.

    The format is that of ``ProcessLibraryBin`` in tvm-ffi: the import tree as rows of children, the
    library itself at its root, then each module's kind and content.
    """
    count = len(modules)
    rows = [0, *[count] * (count + 1)]
    children = range(1, count + 1)
    parts = [
        struct.pack(f"<Q{len(rows)}Q", len(rows), *rows),
        struct.pack(f"<Q{count}Q", count, *children),
        _string(b"_lib"),
    ]
    for module in modules:
        parts += [_string(b"cuda"), _string(module)]
    content = b"".join(parts)
    return struct.pack("<Q", len(content)) + content
