"""The libraries that kernels need where no package has brought them, and where they come from."""

from __future__ import annotations

import ctypes
import glob
import importlib.util
import os
import sys
from pathlib import Path

from . import ffi

TVM_FFI, TVM_RUNTIMES = "libtvm_ffi.so", ("libtvm_runtime.so", "libtvm_runtime_cuda.so")
CUDA_RUNTIME = "libcudart.so.13"


class MissingLibraryError(OSError):
    """A library that kernels need cannot be loaded or found; the message says what to do."""


def installed(*, cuda: bool) -> dict[str, Path]:
    """The libraries of this installation that have to travel with kernels, by name.

    Parameters
    ----------
    cuda
        Whether those for GPUs are needed too.

    Raises
    ------
    MissingLibraryError
        If one is not installed.
    """
    try:
        found = {TVM_FFI: Path(ffi.find_library())}
    except ffi.LibraryNotFoundError as error:
        raise MissingLibraryError(str(error)) from error
    spec = importlib.util.find_spec("tvm") if cuda else None
    roots = list(spec.submodule_search_locations or ()) if spec else []
    for name in TVM_RUNTIMES if cuda else ():
        sources = [path for root in roots if (path := Path(root, "lib", name)).exists()]
        if not sources:
            raise MissingLibraryError(
                f"no {name}: it comes with TVM; pip install 'tf-tvm-ops[generate]'"
            )
        found[name] = sources[0]
    return found


def load_cuda(folder: Path) -> None:
    """Load what images for GPUs need beside ``libtvm_ffi.so``, from a folder that has TVM's part.

    Raises
    ------
    MissingLibraryError
        If a library is missing.
    """
    _load_cuda_runtime()
    for name in TVM_RUNTIMES:
        _load(str(folder / name), f"{folder / name} cannot be loaded")


def _load_cuda_runtime() -> None:
    """Load CUDA's runtime library from Python packages, where PyTorch has it, or as usual."""
    for folder in sys.path:
        pattern = os.path.join(folder or ".", "nvidia", "*", "lib", CUDA_RUNTIME)
        for path in sorted(glob.glob(pattern)):
            _load(path, f"{path} cannot be loaded")
            return
    _load(
        CUDA_RUNTIME,
        f"no {CUDA_RUNTIME}, which TVM's CUDA runtime needs: it is neither in a Python package "
        "(nvidia/*/lib, installed with PyTorch for CUDA 13, or by nvidia-cuda-runtime) nor where "
        "the loader looks (LD_LIBRARY_PATH)",
    )


def _load(path: str, otherwise: str) -> None:
    try:
        ctypes.CDLL(path, ctypes.RTLD_GLOBAL)
    except OSError as error:
        raise MissingLibraryError(f"{otherwise} ({error})") from error
