"""One shared library with the GPU kernels of an architecture: launching code and machine code."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from .. import build
from .source import library_bytes

_BLOB = "__tvm_ffi__library_bin"

_EXPORTS = ("__tvm_ffi__library_ctx", _BLOB, "__TVMFFI*")
"""Where tvm-ffi writes the library's own handle and its functions, and finds what is embedded."""


def link_image(hosts: Sequence[Path], modules: Sequence[bytes], image: Path) -> None:
    """Link launching functions and CUDA modules to an image.

    A module is loaded onto a GPU when a kernel of it is first called there, so that a model pays
    for the kernels that it uses.

    Parameters
    ----------
    hosts
        Object files of the launching functions.
    modules
        As :func:`~tf_tvm_ops.kernels.cuda.source.module_bytes` makes them; none for a library whose
        kernels are imported after loading, as the emulator's are.
    image
        The library.

    Raises
    ------
    BuildError
        If the assembler or linker fails.
    """
    with tempfile.TemporaryDirectory(dir=image.parent) as folder:
        objects = list(hosts)
        if modules:
            objects.append(_embed(library_bytes(list(modules)), Path(folder)))
        build.link_image(objects, image, _EXPORTS)


def _embed(content: bytes, folder: Path) -> Path:
    """An object file with ``content`` under the name that tvm-ffi looks for."""
    blob, text, result = folder / "blob", folder / "blob.s", folder / "blob.o"
    blob.write_bytes(content)
    text.write_text(
        f".section .rodata\n.globl {_BLOB}\n.type {_BLOB}, @object\n.balign 64\n{_BLOB}:\n"
        f'.incbin "{blob}"\n.size {_BLOB}, .-{_BLOB}\n.section .note.GNU-stack,"",@progbits\n',
        encoding="utf-8",
    )
    command = [build.linker(), "-c", str(text), "-o", str(result)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines() or ["no message"]
        raise build.BuildError(f"{command[0]} failed to embed machine code: {lines[-1]}")
    return result
