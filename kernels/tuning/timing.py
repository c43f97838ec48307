"""Timing kernels of an image that is loaded in this process, several in turns.

A kernel takes batch, heads and strides at run time. That gives a timing loop without a call from
Python for each pass: the matrices of the workload are its heads, the passes its batch, and the
stride from one pass to the next is 0, so that the same operands are multiplied again (hot), or that
of a copy of them elsewhere in memory (cold).
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..elements import ADD_NOTHING, ELEMENT_BYTES, WORKSPACE_ALIGNMENT
from .workload import COLD, Workload

SAMPLE_SECONDS = 5e-4
_MOST_PASSES = 1 << 16

Function = Callable[..., Any]


@dataclass(frozen=True)
class Time:
    """Microseconds for one pass over a workload.

    Attributes
    ----------
    median_us
        Of all samples.
    spread_us
        Their interquartile range.
    """

    median_us: float
    spread_us: float


class Operands:
    """Memory of a workload, and the calls that go over it.

    Parameters
    ----------
    workload
        What is computed.
    workspace_bytes
        The most that a kernel needs.
    cold_bytes
        The copies of a cold workload make up this size.
    """

    def __init__(self, workload: Workload, workspace_bytes: int, cold_bytes: int) -> None:
        m, n, k = workload.problem.extents()
        self._workload = workload
        self._elements = {"lhs": m * k, "rhs": k * n, "out": m * n}
        size = ELEMENT_BYTES[workload.problem.dtype]
        total = workload.matrices * size * sum(self._elements.values())
        cold = workload.cache == COLD
        self.copies = max(2, -(-cold_bytes // total)) if cold else 1
        rng = np.random.default_rng(0)
        self._memory = {}
        for name, elements in self._elements.items():
            count = self.copies * workload.matrices * elements
            # Numbers that are ordinary in every type: no time is lost on subnormals.
            pattern = rng.integers(0x3F00, 0x3F80, min(count, 1 << 16), dtype=np.uint16)
            words: Any = np.resize(pattern, -(-count * size // 2))
            if size == 8:
                words[3::4] = 0x3FE0
            elif size == 2 and workload.problem.dtype == "float16":
                words = words & 0x3BFF
            self._memory[name] = _aligned(words.view(np.uint8))
        self._workspace = _aligned(np.zeros(workspace_bytes, np.uint8))
        self._place = 0

    def arguments(self, passes: int) -> list[Any]:
        """Of a call that makes ``passes`` passes, from where the last one ended if cold."""
        w = self._workload
        m, n, k = w.problem.extents()
        if self.copies > 1:
            passes = min(passes, self.copies)
            if self._place + passes > self.copies:
                self._place = 0
        stride = {
            name: w.matrices * elements if self.copies > 1 else 0
            for name, elements in self._elements.items()
        }
        size = ELEMENT_BYTES[w.problem.dtype]
        pointer = {
            name: memory.ctypes.data + self._place * stride[name] * size
            for name, memory in self._memory.items()
        }
        self._place += passes
        lhs_stride = m if w.problem.lhs == "m" else k
        rhs_stride = k if w.problem.rhs == "k" else n
        return [
            *(ctypes.c_void_p(pointer[name]) for name in ("lhs", "rhs")),
            ctypes.c_void_p(None),
            ctypes.c_void_p(pointer["out"]),
            ctypes.c_void_p(self._workspace.ctypes.data),
            *(0, passes * w.matrices, w.matrices),
            *(stride["lhs"], self._elements["lhs"], lhs_stride),
            *(stride["rhs"], self._elements["rhs"], rhs_stride),
            *(0, 0, 0, ADD_NOTHING),
            *(stride["out"], self._elements["out"], n),
            1.0,
        ]

    def seconds(self, function: Function, passes: int) -> float:
        """For one pass, as the mean of ``passes``."""
        arguments = self.arguments(passes)
        made: int = arguments[6] // self._workload.matrices
        start = time.perf_counter()
        function(*arguments)
        return (time.perf_counter() - start) / made


def measure(
    functions: Sequence[Function],
    operands: Operands,
    samples: int,
    started: Callable[[int], None] = lambda index: None,
) -> list[Time]:
    """Time kernels of one workload in turns.

    Parameters
    ----------
    functions
        The kernels.
    operands
        Memory for all of them.
    samples
        Measurements of each.
    started
        Told the index of a kernel before each time that it is run for.

    Returns
    -------
    list of Time
    """
    passes = []
    for index, function in enumerate(functions):
        started(index)
        operands.seconds(function, 1)
        once = min(operands.seconds(function, 1) for _ in range(2))
        # A short first guess counts the call from Python in; a second one does not.
        guess = _passes(once)
        passes.append(_passes(operands.seconds(function, guess)) if guess > 1 else 1)
    times: list[list[float]] = [[] for _ in functions]
    for _ in range(samples):
        for index, (function, count) in enumerate(zip(functions, passes)):
            started(index)
            times[index].append(operands.seconds(function, count))
    return [_summary(seconds) for seconds in times]


def _passes(seconds: float) -> int:
    return max(1, min(_MOST_PASSES, round(SAMPLE_SECONDS / max(seconds, 1e-9))))


def _summary(seconds: Sequence[float]) -> Time:
    low, middle, high = (float(quartile) for quartile in np.percentile(seconds, (25, 50, 75)))
    return Time(1e6 * middle, 1e6 * (high - low))


def _aligned(content: Any) -> Any:
    """A copy that begins at a cache line."""
    memory = np.empty(content.size + WORKSPACE_ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % WORKSPACE_ALIGNMENT
    memory = memory[start : start + content.size]
    memory[...] = content
    return memory
