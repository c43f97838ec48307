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
import numpy.typing as npt

from ..elements import ADD_NOTHING, ELEMENT_BYTES
from ..host_memory import aligned_copy
from ..runtime import ffi
from .workload import COLD, Workload

SAMPLE_SECONDS = 5e-4
_MOST_PASSES = 1 << 16


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


@dataclass(frozen=True)
class Passes:
    """How one call of a kernel goes over a workload several times.

    Attributes
    ----------
    workload
        What is computed.
    copies
        Of the operands, one behind the other; successive passes use successive ones.
    """

    workload: Workload
    copies: int = 1

    @classmethod
    def of(cls, workload: Workload, cold_bytes: int) -> Passes:
        """With copies that make up ``cold_bytes`` if the workload is cold."""
        if workload.cache != COLD:
            return cls(workload)
        return cls(workload, max(2, -(-cold_bytes // sum(cls(workload).bytes().values()))))

    @property
    def elements(self) -> dict[str, int]:
        """Of one matrix of each operand."""
        m, n, k = self.workload.problem.extents()
        return {"lhs": m * k, "rhs": k * n, "out": m * n}

    def bytes(self) -> dict[str, int]:
        """Of one copy of each operand."""
        size = ELEMENT_BYTES[self.workload.problem.dtype] * self.workload.matrices
        return {name: size * elements for name, elements in self.elements.items()}

    def arguments(self, passes: int) -> list[Any]:
        """What follows the pointers in a call."""
        m, n, k = self.workload.problem.extents()
        matrices = self.workload.matrices
        moves = self.copies > 1
        numbers: list[Any] = [0, passes * matrices, matrices]
        strides = {
            "lhs": m if self.workload.problem.lhs == "m" else k,
            "rhs": k if self.workload.problem.rhs == "k" else n,
            "out": n,
        }
        for name, elements in self.elements.items():
            if name == "out":
                numbers += [0, 0, 0, ADD_NOTHING]
            numbers += [matrices * elements if moves else 0, elements, strides[name]]
        return [*numbers, 1.0]


def pattern(dtype: str) -> npt.NDArray[np.uint8]:
    """What operands are filled with, again and again.

    Numbers that are ordinary in every type: no time is lost on subnormals.
    """
    words = np.random.default_rng(0).integers(0x3F00, 0x3F80, 1 << 16, dtype=np.uint16)
    if dtype == "float64":
        words[3::4] = 0x3FE0
    elif dtype == "float16":
        words &= 0x3BFF
    return words.view(np.uint8)


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
        self._passes = Passes.of(workload, cold_bytes)
        self._bytes = self._passes.bytes()
        content = pattern(workload.problem.dtype)
        self._memory = {
            name: aligned_copy(np.resize(content, self._passes.copies * count))
            for name, count in self._bytes.items()
        }
        self._workspace = aligned_copy(np.zeros(workspace_bytes, np.uint8))
        self._place = 0

    def seconds(self, function: ffi.Function, passes: int) -> float:
        """For one pass, as the mean of ``passes``, from where the last ones ended if cold."""
        copies = self._passes.copies
        if copies > 1:
            passes = min(passes, copies)
            if self._place + passes > copies:
                self._place = 0
        pointers = [
            ctypes.c_void_p(self._memory[name].ctypes.data + self._place * self._bytes[name])
            for name in ("lhs", "rhs", "out")
        ]
        pointers.insert(2, ctypes.c_void_p(None))
        pointers.append(ctypes.c_void_p(self._workspace.ctypes.data))
        arguments = [*pointers, *self._passes.arguments(passes)]
        if copies > 1:
            self._place += passes
        call = function.prepare(*arguments)
        start = time.perf_counter()
        call()
        return (time.perf_counter() - start) / passes


def measure(
    functions: Sequence[ffi.Function],
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
        guess = passes_of(once)
        passes.append(passes_of(operands.seconds(function, guess)) if guess > 1 else 1)
    times: list[list[float]] = [[] for _ in functions]
    for _ in range(samples):
        for index, (function, count) in enumerate(zip(functions, passes)):
            started(index)
            times[index].append(operands.seconds(function, count))
    return [summary(seconds) for seconds in times]


def passes_of(seconds: float) -> int:
    """How many passes make up a sample, of which one takes ``seconds``."""
    return max(1, min(_MOST_PASSES, round(SAMPLE_SECONDS / max(seconds, 1e-9))))


def summary(seconds: Sequence[float]) -> Time:
    """Of samples, each the seconds for one pass."""
    low, middle, high = (float(quartile) for quartile in np.percentile(seconds, (25, 50, 75)))
    return Time(1e6 * middle, 1e6 * (high - low))
