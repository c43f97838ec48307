"""The CUDA driver through ctypes: memory, streams, events, and many launches as one graph.

Needs ``libcuda.so.1``, which comes with NVIDIA's driver, and nothing else. Everything lives in a
device's primary context, which it shares with the CUDA runtime, and so with TVM and PyTorch.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

LIBRARY = "libcuda.so.1"

_NON_BLOCKING = 1  # CU_STREAM_NON_BLOCKING: does not wait for the default stream
_CAPTURE_THREAD_LOCAL = 1  # CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
_MULTIPROCESSORS, _L2_BYTES, _MAJOR, _MINOR = 16, 38, 75, 76  # CUdevice_attribute

_pointer = ctypes.c_void_p
_size = ctypes.c_size_t
_int = ctypes.c_int
_address = ctypes.c_uint64  # CUdeviceptr

# Arguments of each function, by the name that the library exports.
_FUNCTIONS: dict[str, tuple[Any, ...]] = {
    "cuInit": (ctypes.c_uint,),
    "cuDriverGetVersion": (ctypes.POINTER(_int),),
    "cuGetErrorName": (_int, ctypes.POINTER(ctypes.c_char_p)),
    "cuGetErrorString": (_int, ctypes.POINTER(ctypes.c_char_p)),
    "cuDeviceGetCount": (ctypes.POINTER(_int),),
    "cuDeviceGet": (ctypes.POINTER(_int), _int),
    "cuDeviceGetName": (ctypes.c_char_p, _int, _int),
    "cuDeviceGetAttribute": (ctypes.POINTER(_int), _int, _int),
    "cuDeviceTotalMem_v2": (ctypes.POINTER(_size), _int),
    "cuDevicePrimaryCtxRetain": (ctypes.POINTER(_pointer), _int),
    "cuDevicePrimaryCtxRelease_v2": (_int,),
    "cuCtxSetCurrent": (_pointer,),
    "cuCtxSynchronize": (),
    "cuMemAlloc_v2": (ctypes.POINTER(_pointer), _size),
    "cuMemFree_v2": (_address,),
    "cuMemcpyHtoD_v2": (_address, _pointer, _size),
    "cuMemcpyDtoH_v2": (_pointer, _address, _size),
    "cuMemcpyDtoD_v2": (_address, _address, _size),
    "cuMemsetD8_v2": (_address, ctypes.c_ubyte, _size),
    "cuStreamCreate": (ctypes.POINTER(_pointer), ctypes.c_uint),
    "cuStreamDestroy_v2": (_pointer,),
    "cuStreamSynchronize": (_pointer,),
    "cuStreamBeginCapture_v2": (_pointer, _int),
    "cuStreamEndCapture": (_pointer, ctypes.POINTER(_pointer)),
    "cuGraphInstantiateWithFlags": (ctypes.POINTER(_pointer), _pointer, ctypes.c_ulonglong),
    "cuGraphLaunch": (_pointer, _pointer),
    "cuGraphExecDestroy": (_pointer,),
    "cuGraphDestroy": (_pointer,),
    "cuEventCreate": (ctypes.POINTER(_pointer), ctypes.c_uint),
    "cuEventRecord": (_pointer, _pointer),
    "cuEventSynchronize": (_pointer,),
    "cuEventElapsedTime": (ctypes.POINTER(ctypes.c_float), _pointer, _pointer),
    "cuEventDestroy_v2": (_pointer,),
}


class CudaError(RuntimeError):
    """A call of the driver failed.

    Attributes
    ----------
    function
        Which.
    code
        The driver's number of the error.
    """

    def __init__(self, function: str, code: int, name: str, text: str) -> None:
        super().__init__(f"{function} failed with {code} ({name}: {text})")
        self.function = function
        self.code = code


class DriverNotFoundError(OSError):
    """There is no CUDA driver, or it lacks what is needed."""


@dataclass(frozen=True)
class Device:
    """A GPU.

    Attributes
    ----------
    ordinal
        Its number, as the driver counts those that are visible.
    name
        As the driver has it.
    capability
        Compute capability times ten: 90 for 9.0.
    multiprocessors
        Number of them.
    cache_bytes
        Size of the second cache.
    memory_bytes
        Size of its memory.
    """

    ordinal: int
    name: str
    capability: int
    multiprocessors: int
    cache_bytes: int
    memory_bytes: int


class Driver:
    """The driver, initialised.

    Raises
    ------
    DriverNotFoundError
        If the library is missing or too old (CUDA 11.4 is enough).
    CudaError
        If it does not start: without a GPU, say.
    """

    def __init__(self) -> None:
        try:
            library = ctypes.CDLL(LIBRARY)
        except OSError as error:
            raise DriverNotFoundError(
                f"no CUDA driver: {LIBRARY} cannot be loaded ({error}); it comes with NVIDIA's "
                "driver, and in a container it has to be passed through from the host"
            ) from error
        self._functions: dict[str, Any] = {}
        for name, arguments in _FUNCTIONS.items():
            try:
                function = getattr(library, name)
            except AttributeError:
                raise DriverNotFoundError(
                    f"{LIBRARY} has no {name}: the driver is older than CUDA 11.4"
                ) from None
            function.argtypes = arguments
            self._functions[name] = function
        self.call("cuInit", 0)

    def call(self, name: str, *arguments: Any) -> None:
        """Call a function of the driver.

        Raises
        ------
        CudaError
            If it fails.
        """
        code = self._functions[name](*arguments)
        if code:
            raise CudaError(
                name, code, *(self._words(f"cuGetError{what}", code) for what in ("Name", "String"))
            )

    def _words(self, function: str, code: int) -> str:
        text = ctypes.c_char_p()
        self._functions[function](code, ctypes.byref(text))
        return (text.value or b"unknown").decode("utf-8", "replace")

    def version(self) -> str:
        """The CUDA version that the driver is made for, ``"13.0"`` say."""
        number = _int()
        self.call("cuDriverGetVersion", ctypes.byref(number))
        return f"{number.value // 1000}.{number.value % 1000 // 10}"

    def devices(self) -> list[Device]:
        """The GPUs that this process may use."""
        count = _int()
        self.call("cuDeviceGetCount", ctypes.byref(count))
        return [self._device(ordinal) for ordinal in range(count.value)]

    def _device(self, ordinal: int) -> Device:
        device = self.handle(ordinal)
        name = ctypes.create_string_buffer(256)
        self.call("cuDeviceGetName", name, len(name), device)
        memory = _size()
        self.call("cuDeviceTotalMem_v2", ctypes.byref(memory), device)
        multiprocessors, cache, major, minor = (
            self._attribute(device, number)
            for number in (_MULTIPROCESSORS, _L2_BYTES, _MAJOR, _MINOR)
        )
        return Device(
            ordinal,
            name.value.decode("utf-8", "replace"),
            10 * major + minor,
            multiprocessors,
            cache,
            memory.value,
        )

    def handle(self, ordinal: int) -> int:
        """The driver's handle of a device."""
        device = _int()
        self.call("cuDeviceGet", ctypes.byref(device), ordinal)
        return device.value

    def _attribute(self, device: int, number: int) -> int:
        value = _int()
        self.call("cuDeviceGetAttribute", ctypes.byref(value), number, device)
        return value.value


class _Owned:
    """Something of the driver that is freed once: by ``close``, or at the end of a ``with``.

    Attributes
    ----------
    handle
        The driver's, as other libraries take it.
    """

    def __init__(self, driver: Driver, create: str, destroy: str, *arguments: Any) -> None:
        handle = _pointer()
        driver.call(create, ctypes.byref(handle), *arguments)
        self.handle = handle.value or 0
        self._driver = driver
        self._destroy = destroy

    def close(self) -> None:
        """Free it. What it is used for must have ended."""
        self._driver.call(self._destroy, self.handle)

    def __enter__(self) -> Any:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        try:
            self.close()
        except CudaError:
            # After a fault of a kernel every call fails; the first failure is what matters.
            if error is None:
                raise


class Context(_Owned):
    """The primary context of a device, current in the thread that makes this.

    Parameters
    ----------
    driver
        The driver.
    ordinal
        Number of the device.
    """

    def __init__(self, driver: Driver, ordinal: int = 0) -> None:
        self.driver = driver
        self.ordinal = ordinal
        self._device = driver.handle(ordinal)
        super().__init__(driver, "cuDevicePrimaryCtxRetain", "", self._device)
        driver.call("cuCtxSetCurrent", self.handle)

    def close(self) -> None:
        """Give the context back."""
        self.driver.call("cuDevicePrimaryCtxRelease_v2", self._device)

    def synchronize(self) -> None:
        """Wait until the device has done everything; raises what went wrong on the way."""
        self.driver.call("cuCtxSynchronize")

    def allocate(self, size: int) -> Memory:
        """Memory of the device, ``size`` bytes, aligned to 256 at least."""
        return Memory(self.driver, size)

    def stream(self) -> Stream:
        """A stream that does not wait for the default one."""
        return Stream(self.driver)

    def event(self) -> Event:
        """A mark in a stream."""
        return Event(self.driver)


class Memory(_Owned):
    """Memory of a device.

    Copies and fills wait for all that the device does, and what they do is done when they return:
    on their own they would pass streams that do not wait for the default one.

    Attributes
    ----------
    address
        Where it begins, on the device.
    size
        In bytes.
    """

    def __init__(self, driver: Driver, size: int) -> None:
        # The driver refuses to allocate nothing.
        super().__init__(driver, "cuMemAlloc_v2", "cuMemFree_v2", max(size, 1))
        self.address = self.handle
        self.size = size

    def write(self, source: int, size: int, offset: int = 0) -> None:
        """Copy ``size`` bytes from ``source``, an address of this process."""
        self._within(offset, size)
        if size:
            self._in_order("cuMemcpyHtoD_v2", self.address + offset, source, size)

    def read(self, target: int, size: int, offset: int = 0) -> None:
        """Copy ``size`` bytes to ``target``, an address of this process."""
        self._within(offset, size)
        if size:
            self._in_order("cuMemcpyDtoH_v2", target, self.address + offset, size)

    def fill(self, byte: int) -> None:
        """Set every byte."""
        if self.size:
            self._in_order("cuMemsetD8_v2", self.address, byte, self.size)

    def repeat(self, size: int) -> None:
        """Fill it with copies of its first ``size`` bytes."""
        done = size
        while 0 < done < self.size:
            part = min(done, self.size - done)
            self._in_order("cuMemcpyDtoD_v2", self.address + done, self.address, part)
            done += part

    def _in_order(self, function: str, *arguments: Any) -> None:
        self._driver.call("cuCtxSynchronize")
        self._driver.call(function, *arguments)
        self._driver.call("cuCtxSynchronize")

    def _within(self, offset: int, size: int) -> None:
        if offset < 0 or size < 0 or offset + size > self.size:
            raise ValueError(f"bytes {offset} to {offset + size} of memory of {self.size} bytes")


class Stream(_Owned):
    """A stream."""

    def __init__(self, driver: Driver) -> None:
        super().__init__(driver, "cuStreamCreate", "cuStreamDestroy_v2", _NON_BLOCKING)

    def synchronize(self) -> None:
        """Wait until it is empty; raises what went wrong on the way."""
        self._driver.call("cuStreamSynchronize", self.handle)

    def capture(self, enqueue: Callable[[], object]) -> Graph:
        """What ``enqueue`` enqueues on this stream, not run, as a graph.

        Kernels have to be loaded before, by being called once: loading is not allowed meanwhile.
        """
        graph = _pointer()
        self._driver.call("cuStreamBeginCapture_v2", self.handle, _CAPTURE_THREAD_LOCAL)
        try:
            enqueue()
        except BaseException:
            # Otherwise the stream would stay in this state. What spoiled the capture is known.
            with suppress(CudaError):
                self._driver.call("cuStreamEndCapture", self.handle, ctypes.byref(graph))
                self._driver.call("cuGraphDestroy", graph)
            raise
        self._driver.call("cuStreamEndCapture", self.handle, ctypes.byref(graph))
        try:
            return Graph(self._driver, graph)
        finally:
            self._driver.call("cuGraphDestroy", graph)


class Graph(_Owned):
    """Launches that are started at once."""

    def __init__(self, driver: Driver, graph: ctypes.c_void_p) -> None:
        super().__init__(driver, "cuGraphInstantiateWithFlags", "cuGraphExecDestroy", graph, 0)

    def launch(self, stream: Stream) -> None:
        """Enqueue all of it."""
        self._driver.call("cuGraphLaunch", self.handle, stream.handle)


class Event(_Owned):
    """A mark in a stream, with the time at which the device passed it."""

    def __init__(self, driver: Driver) -> None:
        super().__init__(driver, "cuEventCreate", "cuEventDestroy_v2", 0)

    def record(self, stream: Stream) -> None:
        """Put it behind what the stream has to do."""
        self._driver.call("cuEventRecord", self.handle, stream.handle)

    def synchronize(self) -> None:
        """Wait until the device has passed it."""
        self._driver.call("cuEventSynchronize", self.handle)

    def microseconds_since(self, earlier: Event) -> float:
        """Time from another event, which lies in the past as this one does."""
        milliseconds = ctypes.c_float()
        self._driver.call(
            "cuEventElapsedTime", ctypes.byref(milliseconds), earlier.handle, self.handle
        )
        return 1e3 * milliseconds.value
