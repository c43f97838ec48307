"""Memory of a GPU for the oracle check: a :class:`~tf_tvm_ops.kernels.oracle.Memory`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from . import cuda

_CHUNK_BYTES = 64 << 20
_UNIT = 256
_BEHIND_BYTES = 4096


class DeviceMemory:
    """Hands out memory of a GPU until it is reset; operands lie in it one behind the other.

    Whatever a kernel does behind an operand is told by what follows it, with gaps or without.

    Parameters
    ----------
    context
        Of the GPU.
    stream
        Where kernels are enqueued.
    """

    def __init__(self, context: cuda.Context, stream: cuda.Stream) -> None:
        self._context = context
        self._stream = stream
        self._chunks: list[cuda.Memory] = []
        self._chunk = 0
        self._used = 0

    def allocate(self, shape: Sequence[int], dtype: npt.DTypeLike, *, gaps: bool) -> DeviceBlock:
        """See :class:`~tf_tvm_ops.kernels.oracle.Memory`."""
        size = math.prod(shape)
        item = np.dtype(dtype).itemsize
        behind = math.prod(shape[2:]) + _BEHIND_BYTES // item
        data = np.zeros(size + behind, dtype)
        # Without gaps operands are aligned to their elements alone, as slices of tensors are.
        lead = 0 if gaps else item
        memory, offset = self._take(lead + data.nbytes)
        return DeviceBlock(memory, offset + lead, data, shape)

    def wait(self) -> None:
        """See :class:`~tf_tvm_ops.kernels.oracle.Memory`."""
        self._stream.synchronize()

    def reset(self) -> None:
        """Hand out the same memory again."""
        self._chunk = self._used = 0

    def _take(self, size: int) -> tuple[cuda.Memory, int]:
        while True:
            if self._chunk == len(self._chunks):
                self._chunks.append(self._context.allocate(max(_CHUNK_BYTES, size)))
            chunk = self._chunks[self._chunk]
            if self._used + size <= chunk.size:
                offset = self._used
                self._used += -(-size // _UNIT) * _UNIT
                return chunk, offset
            self._chunk, self._used = self._chunk + 1, 0


class DeviceBlock:
    """See :class:`~tf_tvm_ops.kernels.oracle.Block`."""

    def __init__(
        self, memory: cuda.Memory, offset: int, data: npt.NDArray[Any], shape: Sequence[int]
    ) -> None:
        size = math.prod(shape)
        self._memory = memory
        self._offset = offset
        self._data = data
        self.array = data[:size].reshape(shape)
        self.behind = data[size:]
        self.address = memory.address + offset

    def send(self) -> None:
        """Copy the arrays to the GPU."""
        self._memory.write(self._data.ctypes.data, self._data.nbytes, self._offset)

    def fetch(self) -> None:
        """Copy them back."""
        self._memory.read(self._data.ctypes.data, self._data.nbytes, self._offset)
