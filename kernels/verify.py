"""The oracle check that a kernel passes before it enters a manifest: images for CPUs.

What is checked is in ``oracle.py``. Here kernels are called through tvm-ffi, in memory of this
process, which ends behind the last row of operands without gaps.
"""

from __future__ import annotations

import ctypes
import math
import mmap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import tvm_ffi

from . import oracle
from .oracle import Layout as Layout
from .problem import Problem
from .targets import request_tiles

_MISSING = "symbol missing from the image"


def verify_image(image: Path, entries: list[tuple[str, Problem, int]]) -> list[str]:
    """Check kernels of an image against the oracle.

    Parameters
    ----------
    image
        A linked image.
    entries
        Symbol, problem and workspace size in bytes of each kernel.

    Returns
    -------
    list of str
        What is wrong with each kernel, ``""`` where nothing is.
    """
    request_tiles()
    module = tvm_ffi.load_module(str(image.resolve()))
    return [verify_kernel(module, *entry) for entry in entries]


def check_layout(
    image: Path, symbol: str, problem: Problem, workspace_bytes: int, layout: Layout
) -> str:
    """As :func:`verify_image` for one kernel with fixed extents and one layout."""
    request_tiles()
    function = tvm_ffi.load_module(str(image.resolve())).get_function(symbol)
    rng = np.random.default_rng()
    return oracle.check_layout(
        function, problem, problem.extents(), layout, workspace_bytes, HostMemory(), rng
    )


def missing_symbols(image: Path, symbols: list[str]) -> list[str]:
    """What is wrong with each kernel, without running it: "" if it is there."""
    module = tvm_ffi.load_module(str(image.resolve()))
    return ["" if _function(module, symbol) else _MISSING for symbol in symbols]


def _function(module: Any, symbol: str) -> Any:
    try:
        return module.get_function(symbol)
    except AttributeError:
        return None


def verify_kernel(module: Any, symbol: str, problem: Problem, workspace_bytes: int) -> str:
    """What is wrong with one kernel of a module, ``""`` if nothing is."""
    function = _function(module, symbol)
    if function is None:
        return _MISSING
    return oracle.check_kernel(function, problem, workspace_bytes, HostMemory())


class HostMemory:
    """Memory of this process."""

    def allocate(self, shape: Sequence[int], dtype: npt.DTypeLike, *, gaps: bool) -> _HostBlock:
        """See :class:`.oracle.Memory`."""
        return _HostBlock(*(_followed if gaps else _guarded)(shape, dtype))

    def wait(self) -> None:
        """Kernels are done when they return."""


class _HostBlock:
    """See :class:`.oracle.Block`."""

    def __init__(self, array: npt.NDArray[Any], behind: npt.NDArray[Any]) -> None:
        self.array = array
        self.behind = behind
        self.address = int(array.ctypes.data)

    def send(self) -> None:
        """Kernels see the arrays."""

    def fetch(self) -> None:
        """As above."""


_Memory = tuple[npt.NDArray[Any], npt.NDArray[Any]]


def _followed(shape: Sequence[int], dtype: npt.DTypeLike) -> _Memory:
    """Memory, and a row of every head and a page of memory that follows it."""
    size = math.prod(shape)
    behind = math.prod(shape[2:]) + mmap.PAGESIZE // np.dtype(dtype).itemsize
    memory = np.zeros(size + behind, dtype)
    return memory[:size].reshape(shape), memory[size:]


def _guarded(shape: Sequence[int], dtype: npt.DTypeLike) -> _Memory:
    """Memory and nothing: who reads or writes behind it ends the process."""
    size = math.prod(shape) * np.dtype(dtype).itemsize
    pages = -(-size // mmap.PAGESIZE) + 1
    memory = np.frombuffer(mmap.mmap(-1, pages * mmap.PAGESIZE), np.uint8)
    guard = memory[-mmap.PAGESIZE :]
    protection = 0  # PROT_NONE, which mmap of Python has no name for
    if ctypes.CDLL(None).mprotect(ctypes.c_void_p(guard.ctypes.data), mmap.PAGESIZE, protection):
        raise OSError("no memory that must not be touched: mprotect failed")
    end = (pages - 1) * mmap.PAGESIZE
    return memory[end - size : end].view(dtype).reshape(shape), np.empty(0, dtype)
