"""PyTorch as far as the GPU check uses it, on NumPy, for memory of the fake driver.

In the place of the real one: what is enqueued while a graph is captured is done when it is
replayed. ``FAKE_TORCH_FAULT=wrong`` makes products wrong, ``FAKE_TORCH_FAULT=error`` impossible.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace

import numpy as np

__version__ = "2.0.fake"
version = SimpleNamespace(cuda="13.0")
float16, float32, float64 = map(np.dtype, ("float16", "float32", "float64"))
bfloat16 = np.dtype("V2")

PASS_SECONDS = 2e-4
"""What each operation takes, so that ours is faster or slower for sure."""

_capturing: list[list[Callable[[], object]]] = []


def _do(action: Callable[[], object]) -> None:
    if _capturing:
        _capturing[-1].append(action)
    else:
        action()


class Tensor:
    def __init__(self, array: np.ndarray) -> None:
        self.array = array

    @property
    def dtype(self) -> np.dtype:
        return self.array.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        return self.array.shape

    def flatten(self, first: int, last: int) -> Tensor:
        assert (first, last) == (0, 1)
        return self.view((-1, *self.shape[2:]))

    def unflatten(self, dimension: int, sizes: tuple[int, ...]) -> Tensor:
        assert dimension == 0
        return self.view((*sizes, *self.shape[1:]))

    def view(self, *shape: object) -> Tensor:
        given = shape[0] if isinstance(shape[0], tuple) else shape
        view = self.array.reshape(given)
        assert np.shares_memory(view, self.array)
        return Tensor(view)

    def transpose(self, first: int, second: int) -> Tensor:
        return Tensor(self.array.swapaxes(first, second))

    def contiguous(self) -> Tensor:
        return self._new(lambda: self.array)

    def __mul__(self, factor: float) -> Tensor:
        return self._new(lambda: self.array * factor)

    def __add__(self, other: Tensor) -> Tensor:
        return self._new(lambda: self.array + other.array)

    def mul_(self, factor: float) -> None:
        self._set(lambda: self.array * factor)

    def add_(self, other: Tensor) -> None:
        self._set(lambda: self.array + other.array)

    def copy_(self, other: Tensor) -> None:
        self._set(lambda: other.array)

    def fill_(self, value: float) -> None:
        self._set(lambda: value)

    def _set(self, compute: Callable[[], object]) -> None:
        def action() -> None:
            time.sleep(PASS_SECONDS)
            self.array[...] = compute()

        _do(action)

    def _new(self, compute: Callable[[], np.ndarray]) -> Tensor:
        result = Tensor(np.full_like(compute(), np.nan, order="C"))
        result._set(compute)
        return result


def as_tensor(foreign: object, device: str) -> Tensor:
    assert device == "cuda"
    interface = foreign.__cuda_array_interface__
    dtype, shape = np.dtype(interface["typestr"]), interface["shape"]
    size = int(np.prod(shape)) * dtype.itemsize
    memory = (ctypes.c_byte * size).from_address(interface["data"][0])
    return Tensor(np.frombuffer(memory, dtype).reshape(shape))


def empty_like(other: Tensor) -> Tensor:
    return Tensor(np.empty_like(other.array))


def bmm(lhs: Tensor, rhs: Tensor, out: Tensor | None = None) -> Tensor:
    fault = os.environ.get("FAKE_TORCH_FAULT")
    if fault == "error":
        raise RuntimeError("CUBLAS_STATUS_FAKE")
    factor = 2 if fault == "wrong" else 1

    def compute() -> np.ndarray:
        return factor * np.matmul(*(x.array.astype(np.float64) for x in (lhs, rhs)))

    if out is None:
        shape = (*lhs.shape[:2], rhs.shape[2])
        out = Tensor(np.full(shape, np.nan, lhs.dtype))
    out._set(compute)
    return out


def compile(  # noqa: A001
    function: Callable[..., Tensor], mode: str, dynamic: bool
) -> Callable[..., Tensor]:
    assert mode == "max-autotune-no-cudagraphs"
    assert not dynamic
    return function


class CUDAGraph:
    def capture_begin(self, capture_error_mode: str) -> None:
        assert capture_error_mode == "thread_local"
        self._actions: list[Callable[[], object]] = []
        _capturing.append(self._actions)

    def capture_end(self) -> None:
        _capturing.pop()

    def replay(self) -> None:
        for action in self._actions:
            action()

    def reset(self) -> None:
        self._actions = []


@contextlib.contextmanager
def _stream(stream: object) -> Iterator[None]:
    assert stream.handle
    yield


cuda = SimpleNamespace(
    is_available=lambda: True,
    ExternalStream=lambda handle: SimpleNamespace(handle=handle),
    CUDAGraph=CUDAGraph,
    stream=_stream,
)
backends = SimpleNamespace(cuda=SimpleNamespace(matmul=SimpleNamespace()))
_dynamo = SimpleNamespace(reset=lambda: None)
