"""Memory of this process for the oracle check: a :class:`~.oracle.Memory`."""

from __future__ import annotations

import ctypes
import math
import mmap
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from .elements import WORKSPACE_ALIGNMENT


class HostMemory:
    """Memory of this process. What has no gaps ends where memory does."""

    def allocate(self, shape: Sequence[int], dtype: npt.DTypeLike, *, gaps: bool) -> _HostBlock:
        """See :class:`.oracle.Memory`."""
        return _HostBlock(*(_followed if gaps else _guarded)(shape, dtype))

    def wait(self) -> None:
        """Kernels are done when they return."""


def aligned_copy(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """A contiguous copy that begins at a cache line, as TensorFlow's tensors and workspaces do."""
    memory = np.empty(array.nbytes + WORKSPACE_ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % WORKSPACE_ALIGNMENT
    copy = memory[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


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
