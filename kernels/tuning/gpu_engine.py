"""Running candidates in this process, on the first GPU that it sees."""

from __future__ import annotations

import ctypes
import importlib.util
import statistics
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..oracle import check_kernel
from ..problem import Problem
from ..runtime import cuda, ffi, libraries
from ..runtime.device_memory import DeviceMemory
from ..runtime.turns import time_in_turns
from .engine import MISSING
from .measurer import Group, Trial
from .timing import Passes, Time, pattern, summary

_SAMPLE_US = 200.0
_MOST_LAUNCHES = 512

_LHS, _RHS, _OUT = 0, 1, 3  # places of arguments


def describe() -> str:
    """One line that tells GPUs with different timing apart.

    Raises
    ------
    DriverNotFoundError, CudaError
        If there is no driver, or no GPU.
    """
    device = cuda.Driver().devices()[0]
    major, minor = divmod(device.capability, 10)
    return f"{device.name}, compute capability {major}.{minor}"


class GpuEngine:
    """See :class:`~.engine.Engine`. A sample is a graph of many launches, timed by events.

    Parameters
    ----------
    cold_bytes
        Copies of a cold workload make up this size.
    folder
        With ``libtvm_ffi.so`` and TVM's runtime libraries; None for those of installed packages.
    """

    def __init__(self, cold_bytes: int, folder: str | None) -> None:
        driver = cuda.Driver()
        device = driver.devices()[0]
        self._context = cuda.Context(driver, device.ordinal)
        self._stream = self._context.stream()
        self._library = ffi.Library(str(Path(folder, libraries.TVM_FFI)) if folder else None)
        libraries.load_cuda(Path(folder) if folder else _installed())
        self._library.set_stream(device.ordinal, self._stream.handle)
        self._memory = DeviceMemory(self._context, self._stream)
        self._cold_bytes = cold_bytes
        self._module: ffi.Module | None = None

    def load(self, image: str) -> None:
        """See :class:`~.engine.Engine`."""
        self._context.synchronize()
        self._module = None
        self._module = self._library.load_module(image)

    def check(self, trial: Trial, problem: Problem) -> str:
        """See :class:`~.engine.Engine`."""
        try:
            function = self._function(trial)
        except AttributeError:
            return MISSING
        self._memory.reset()
        return check_kernel(function, problem, trial.workspace_bytes, self._memory)

    def time(
        self, group: Group, trials: Sequence[Trial], started: Callable[[int], None]
    ) -> list[Time]:
        """See :class:`~.engine.Engine`."""
        passes = Passes.of(group.workload, self._cold_bytes)
        # Of small operands fewer copies than a cache holds: a graph has a launch for each.
        passes = replace(passes, copies=min(passes.copies, _MOST_LAUNCHES))
        with ExitStack() as stack:
            memory = {
                name: stack.enter_context(self._filled(passes, count))
                for name, count in passes.bytes().items()
            }
            pointers = [
                ctypes.c_void_p(memory[name].address) if name else ctypes.c_void_p(None)
                for name in ("lhs", "rhs", "", "out", "")
            ]
            runs, launches = [], []
            for index, trial in enumerate(trials):
                started(index)
                call = self._function(trial).prepare(*pointers, *passes.arguments(1))
                count = self._launches(call, passes)
                graph = stack.enter_context(self._graph(call, passes, memory, count))
                runs.append(_Run(graph, self._stream, index, started))
                launches.append(count)
            times = time_in_turns(self._context, self._stream, runs, group.samples)
            self._context.synchronize()
        return [
            summary([1e-6 * us / count for us in found]) for found, count in zip(times, launches)
        ]

    def _launches(self, call: Any, passes: Passes) -> int:
        """How many launches make up a sample; of cold operands, all copies once at least."""
        call()
        self._stream.synchronize()
        (once,) = time_in_turns(self._context, self._stream, [call], 3)
        wanted = round(_SAMPLE_US / max(statistics.median(once), 0.5))
        return max(passes.copies, 4, min(_MOST_LAUNCHES, wanted))

    def _graph(
        self, call: Any, passes: Passes, memory: dict[str, cuda.Memory], launches: int
    ) -> cuda.Graph:
        size = passes.bytes()

        def enqueue() -> None:
            for launch in range(launches):
                copy = launch % passes.copies
                for place, name in ((_LHS, "lhs"), (_RHS, "rhs"), (_OUT, "out")):
                    call.set(place, ctypes.c_void_p(memory[name].address + copy * size[name]))
                call()

        return self._stream.capture(enqueue)

    def _filled(self, passes: Passes, count: int) -> cuda.Memory:
        memory = self._context.allocate(passes.copies * count)
        content = pattern(passes.workload.problem.dtype)[: memory.size]
        memory.write(content.ctypes.data, content.nbytes)
        memory.repeat(content.nbytes)
        return memory

    def _function(self, trial: Trial) -> ffi.Function:
        assert self._module is not None, "an image is loaded first"
        return self._module.get_function(trial.symbol)


class _Run:
    """Launches a graph, and says so."""

    def __init__(
        self, graph: cuda.Graph, stream: cuda.Stream, index: int, started: Callable[[int], None]
    ) -> None:
        self._graph = graph
        self._stream = stream
        self._index = index
        self._started = started

    def __call__(self) -> None:
        self._started(self._index)
        self._graph.launch(self._stream)


def _installed() -> Path:
    """The folder with TVM's runtime libraries.

    Raises
    ------
    MissingLibraryError
        If TVM is not installed.
    """
    libraries.installed(cuda=True)
    spec = importlib.util.find_spec("tvm")
    assert spec is not None
    return Path(next(iter(spec.submodule_search_locations or ())), "lib")
