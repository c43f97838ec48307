"""What one core can do at best: fused multiply-adds on registers, and loads from each cache.

Small loops, compiled by the same code generator as kernels, so that a kernel and its ceiling differ
in nothing but what they do. Each figure is the best of many short samples: whatever disturbs one
makes it slower. The drawing that they belong to is Williams, Waterman and Patterson's "Roofline"
(2009).
"""

from __future__ import annotations

import ctypes
import itertools
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import tirx
from tvm.script.ir_builder import IRBuilder
from tvm.tirx.script.builder import ir as T

from .. import build
from ..compute import FLAT_ELEMENTS
from ..problem import DTYPES, Problem
from ..schedules import bf16
from ..targets import Target
from ..vectors import COMPUTE_DTYPES, ELEMENT_BYTES, Accumulator, View, int64, splat, storage_dtype
from . import machine
from .workload import COLD, Workload

MEMORY = "memory"
_MEMORY_LEAST_BYTES = 64 << 20
_LINE_BYTES = 64

_SAMPLE_SECONDS = 5e-4
_ROUNDS, _ROUND_SECONDS = 6, 0.02
"""For each figure: with those of every cache and type, a second or so."""
_LOADS = 8
"""Vectors in one step of the loop over memory."""


@dataclass(frozen=True)
class Level:
    """A cache, or memory.

    Attributes
    ----------
    name
        ``"L1d"``, …, or ``"memory"``.
    bytes
        Its size; None for memory.
    gigabytes_per_second
        What one core reads from it, 10⁹ bytes a second.
    """

    name: str
    bytes: int | None
    gigabytes_per_second: float


@dataclass(frozen=True)
class Ceilings:
    """What bounds kernels of one target on one core of this machine.

    Attributes
    ----------
    gflops
        10⁹ operations a second by element type, two for each multiply-add; a type whose fastest
        instruction was not measured is missing.
    levels
        The nearest first, memory last.
    """

    gflops: Mapping[str, float]
    levels: tuple[Level, ...]

    def level(self, workload: Workload) -> Level:
        """Where the operands of a pass over a workload come from: the nearest that holds them."""
        size = workload.matrices * matrix_bytes(workload.problem)
        for level in self.levels:
            if level.bytes is None or (workload.cache != COLD and size <= level.bytes):
                return level
        return self.levels[-1]

    def of(self, workload: Workload) -> float | None:
        """The most GFLOP/s that a workload can reach; None if its type has no ceiling."""
        peak = self.gflops.get(workload.problem.dtype)
        if peak is None:
            return None
        loads = self.level(workload).gigabytes_per_second
        return min(peak, intensity(workload.problem) * loads)


def matrix_bytes(problem: Problem) -> int:
    """Each element of operands and result of one matrix, once."""
    m, n, k = problem.extents()
    return (m * k + k * n + m * n) * ELEMENT_BYTES[problem.dtype]


def intensity(problem: Problem) -> float:
    """Operations for each byte, two for a multiply-add."""
    m, n, k = problem.extents()
    return 2 * m * n * k / matrix_bytes(problem)


def measure(target: Target) -> Ceilings:
    """Measure them on the core that candidates are timed on; takes about a second.

    Raises
    ------
    ValueError
        If this machine cannot run the target.
    """
    if not target.runs_here():
        raise ValueError(f"{target.name}: this machine cannot run it; nothing to measure")
    kinds = _kinds(target)
    sums = {kind: _fma_loop(target, kind) for kind in dict.fromkeys(kinds.values())}
    loads = _load_loops(target)
    with _pinned(machine.cores()[-1]):
        rates = _best_rates([*sums.values(), *loads.values()])
    gflops = dict(zip(sums, rates))
    caches = machine.cache_sizes()
    levels = [Level(name, caches.get(name), rate) for name, rate in zip(loads, rates[len(sums) :])]
    return Ceilings(
        {dtype: gflops[kind] for dtype, kind in kinds.items()}, tuple(consistent(levels))
    )


def consistent(levels: Sequence[Level]) -> list[Level]:
    """No level slower than one farther out, whose data come by way of it.

    Where a sample says so nevertheless, it was disturbed.
    """
    best = list(itertools.accumulate((v.gigabytes_per_second for v in reversed(levels)), max))
    return [Level(v.name, v.bytes, rate) for v, rate in zip(levels, reversed(best))]


@dataclass(frozen=True)
class _Loop:
    """Something to time.

    Attributes
    ----------
    run
        Told how often to do it.
    amount
        10⁹ operations or bytes, done once.
    """

    run: Callable[[int], object]
    amount: float


def _kinds(target: Target) -> dict[str, str]:
    """What each element type is computed by: float32 for 16 bits, unless there is more for it."""
    kinds = {dtype: COMPUTE_DTYPES[dtype] for dtype in DTYPES if dtype not in target.tile_dtypes}
    if target.multiplies_bfloat16 and "bfloat16" in kinds:
        kinds["bfloat16"] = "bfloat16"
    return kinds


def _fma_loop(target: Target, kind: str) -> _Loop:
    chains = _chains(target)
    function = _compiled(target, fma_function(target, kind))
    operands = _Memory(4 * _LINE_BYTES, fill=0.5)
    out = _Memory(chains * _LINE_BYTES)
    each = 2 * chains * target.lanes(kind) * (bf16.PAIR if kind == "bfloat16" else 1)
    return _Loop(lambda steps: function(operands.pointer, out.pointer, steps), each / 1e9)


def _load_loops(target: Target) -> dict[str, _Loop]:
    """By name of the level, the nearest first."""
    function = _compiled(target, load_function(target))
    out = _Memory(_LOADS * _LINE_BYTES)
    # Half of a cache: the rest is room for what else is in it.
    sizes = {name: size // 2 for name, size in machine.cache_sizes().items()}
    sizes[MEMORY] = max(_MEMORY_LEAST_BYTES, 2 * machine.last_level_cache_bytes())
    memory = _Memory(sizes[MEMORY])
    step = _LOADS * target.vector_bits // 8

    def loop(steps: int) -> _Loop:
        return _Loop(
            lambda passes: function(memory.pointer, out.pointer, steps, passes), steps * step / 1e9
        )

    return {name: loop(max(1, size // step)) for name, size in sizes.items()}


def _best_rates(loops: Sequence[_Loop]) -> list[float]:
    """10⁹ a second of each loop, in its best sample.

    They are timed in turns: what disturbs the machine for a while then does not meet all samples
    of one.
    """
    counts = [_repetitions(loop.run) for loop in loops]
    best = [0.0] * len(loops)
    for _ in range(_ROUNDS):
        for index, (loop, count) in enumerate(zip(loops, counts)):
            end = time.perf_counter() + _ROUND_SECONDS
            while True:
                rate = loop.amount * count / _seconds(loop.run, count)
                best[index] = max(best[index], rate)
                if time.perf_counter() >= end:
                    break
    return best


def _repetitions(run: Callable[[int], object]) -> int:
    """As many as make a sample."""
    run(1)
    count = 1
    while _seconds(run, count) < _SAMPLE_SECONDS / 2:
        count *= 4
    return count


def _seconds(run: Callable[[int], object], repetitions: int) -> float:
    start = time.perf_counter()
    run(repetitions)
    return time.perf_counter() - start


def _chains(target: Target) -> int:
    """Sums that do not depend on each other: more than latency needs, fewer than registers."""
    return target.vector_registers // 2 + 4


def fma_function(target: Target, kind: str) -> Any:
    """A loop of fused multiply-adds on registers alone, as TensorIR.

    Parameters
    ----------
    target
        What it is compiled for.
    kind
        ``"float32"``, ``"float64"``, or ``"bfloat16"`` for products of pairs.
    """
    sums = COMPUTE_DTYPES[kind]
    lanes = target.lanes(kind)
    pairs = kind == "bfloat16"
    with IRBuilder() as builder, T.prim_func():
        operands, out, steps = _arguments("ceiling_fma", kind, sums, ("steps",))
        with bf16.instruction() if pairs else nullcontext():
            # Each starts from a number of its own: equal chains would be computed once.
            chains = [Accumulator(sums, lanes) for _ in range(_chains(target))]
            for number, chain in enumerate(chains):
                chain.set(splat(tirx.FloatImm(sums, float(number)), lanes))
            if pairs:
                raw = [operands.load_raw(int64(i * 2 * lanes), 2 * lanes) for i in range(2)]
                a, b = (bf16.pairs(vector, lanes) for vector in raw)
            else:
                a, b = (operands.load(int64(i * lanes), lanes) for i in range(2))
            with T.serial(int64(0), steps):
                for chain in chains:
                    if pairs:
                        chain.set(bf16.multiply_pairs(chain.get(), a, b, lanes))
                    else:
                        chain.multiply_add(a, b)
            for number, chain in enumerate(chains):
                out.store(int64(number * lanes), chain.get(), lanes)
    return builder.get()


def load_function(target: Target) -> Any:
    """A loop that reads memory from one end to the other, several times, as TensorIR."""
    lanes = target.lanes("float32")
    with IRBuilder() as builder, T.prim_func():
        memory, out, steps, passes = _arguments(
            "ceiling_load", "float32", "float32", ("steps", "passes")
        )
        sums = [Accumulator("float32", lanes) for _ in range(_LOADS)]
        with T.serial(int64(0), passes), T.serial(int64(0), steps) as step:
            for number, total in enumerate(sums):
                place = (step * _LOADS + number) * lanes
                total.set(total.get() + memory.load(place, lanes))
        for number, total in enumerate(sums):
            out.store(int64(number * lanes), total.get(), lanes)
    return builder.get()


def _arguments(name: str, operand: str, result: str, integers: Sequence[str]) -> list[Any]:
    """Begin a function: views of what it reads and writes, and its integer arguments."""
    T.func_name(name)
    types = {"operands": operand, "out": result}
    pointers = {key: T.arg(key, T.handle(storage_dtype(dtype))) for key, dtype in types.items()}
    numbers = [T.arg(integer, tirx.Var(integer, "int64")) for integer in integers]
    T.func_attr({"global_symbol": name, "tirx.noalias": True})
    views = [
        View(
            T.decl_buffer(
                [int64(FLAT_ELEMENTS)], storage_dtype(dtype), data=pointers[key], align=_LINE_BYTES
            ),
            dtype,
        )
        for key, dtype in types.items()
    ]
    return [*views, *numbers]


def _compiled(target: Target, function: Any) -> Callable[..., Any]:
    name = str(function.attrs["global_symbol"])
    found: Callable[..., Any] = build.compile_module(function, name, target).get_function(name)
    return found


class _Memory:
    """Floats that begin at a cache line."""

    def __init__(self, size: int, fill: float = 0.0) -> None:
        self._content = np.full(size // 4 + _LINE_BYTES, fill, np.float32)
        address = self._content.ctypes.data
        self.pointer = ctypes.c_void_p(address + -address % _LINE_BYTES)


@contextmanager
def _pinned(core: int) -> Iterator[None]:
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
