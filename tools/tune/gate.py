"""The gate: each kernel of a pack against stock TensorFlow, inside a graph, in turns.

A kernel is used where it won by more than the noise, with its operands in cache or without, and
lost in neither; the manifest holds what was measured, and the dispatcher decides by it. The bare
product is measured first, with its operands in cache. What that leaves open is measured too: cold
operands where the win was small, and what fusing adds where the bare product would not be served,
since stock pays extra passes over memory there.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from tf_tvm_ops.kernels import manifest
from tf_tvm_ops.kernels.manifest import Duel, ImageEntry, KernelEntry, Manifest, Timing
from tf_tvm_ops.kernels.problem import Problem
from tf_tvm_ops.kernels.shapes import ShapeRow
from tf_tvm_ops.tools.bench import fused, runner
from tf_tvm_ops.tools.bench.cases import Case
from tf_tvm_ops.tools.bench.worker import LEAST_US, Job

Report = Callable[[str, int, int], None]

_SECONDS = 0.08
_REPEATS = 15
_MOST_OPS = 96
_MOST_COPIES = 192
"""So small operands are out of the first caches only, when they are to be cold."""

_CLEAR_WIN = 2.0
"""A kernel that is this much faster than stock with operands in cache is not slower without."""

_EPILOGUES = {"": "none", "add": "add", "transpose": "transpose"}

_Halves = dict[tuple[str, int, str], dict[bool, Duel]]
"""Duels by symbol, matrices and epilogue, and by whether oneDNN was on."""


@dataclass(frozen=True)
class _Entrant:
    """A kernel, and a product that it serves."""

    kernel: KernelEntry
    case: Case

    @property
    def key(self) -> tuple[str, int]:
        """What tells it from the others."""
        return self.kernel.symbol, _matrices(self.case)


def gate(
    pack: Path,
    target: str,
    rows: Sequence[ShapeRow],
    threads: int,
    report: Report,
    notes: list[str],
) -> Manifest:
    """Measure the kernels of one target of a pack against stock.

    Parameters
    ----------
    pack
        Folder of a pack whose manifest has no timings, so that every kernel is used.
    target
        One that this machine can run.
    rows
        Where products come from, with their batches.
    threads
        Intra-op threads.
    report
        Told of progress.
    notes
        Added to: a line for each product that ended the process that measures.

    Returns
    -------
    Manifest
        That of the pack, with timings, and without kernels that were wrong or crashed in a graph.

    Raises
    ------
    WorkerError
        If the process that measures does not work.
    """
    whole = manifest.load(pack)
    (image,) = (image for image in whole.images if image.target == target)
    entrants = _entrants(image, rows)
    found: dict[str, list[Timing]] = {}
    faults = _Faults(notes)

    def run(step: str, chosen: list[_Entrant], cache: str, *, bare: bool) -> None:
        chosen = [e for e in chosen if e.kernel.symbol not in faults.kernels]
        if not chosen:
            return
        setting = _Setting(pack, target, threads, cache, bare)
        timings = _measure(setting, chosen, faults, partial(report, step))
        for symbol, timing in timings:
            found.setdefault(symbol, []).append(timing)

    run(f"against stock, {target}", entrants, "hot", bare=True)
    entrants = [e for e in entrants if e.kernel.symbol in found]
    close = [e for e in entrants if _advantage(found[e.kernel.symbol]) < _CLEAR_WIN]
    run(f"cold, {target}", close, "cold", bare=True)
    left = [e for e in entrants if not _serves(e.kernel, found[e.kernel.symbol])]
    run(f"fused, {target}", left, "hot", bare=False)
    timed = replace(
        image,
        kernels=tuple(
            replace(kernel, timings=_distinct(found.get(kernel.symbol, ())))
            for kernel in image.kernels
            if kernel.symbol not in faults.kernels
        ),
    )
    return replace(whole, images=tuple(timed if i is image else i for i in whole.images))


def _entrants(image: ImageEntry, rows: Sequence[ShapeRow]) -> list[_Entrant]:
    """Each kernel with the smallest and the largest batch that the tables name."""
    by_problem: dict[Problem, dict[int, ShapeRow]] = {}
    for row in rows:
        by_problem.setdefault(row.problem, {}).setdefault(math.prod(row.batch), row)
    entrants = []
    for kernel in image.kernels:
        batches = by_problem.get(kernel.problem, {})
        for matrices in sorted({min(batches), max(batches)}) if batches else ():
            entrants.append(_Entrant(kernel, Case.of(batches[matrices])))
    # Those that one graph serves follow each other.
    return sorted(entrants, key=lambda e: (e.case.dtype, e.case.adj_x, e.case.adj_y))


@dataclass(frozen=True)
class _Setting:
    """What all measurements of a step share."""

    pack: Path
    target: str
    threads: int
    cache: str
    bare: bool

    @property
    def epilogues(self) -> tuple[str, ...]:
        """Those that are measured."""
        return ("none",) if self.bare else tuple(_EPILOGUES.values())

    def job(self) -> Job:
        """What a worker is told, but for the products."""
        seconds = _SECONDS * (1 if self.bare else 3)
        return replace(
            runner.make_job((), (self.cache,), (str(self.pack),), seconds, _REPEATS),
            threads=self.threads,
            cpu_target=self.target,
            bare=self.bare,
            most_ops=_MOST_OPS,
            most_copies=_MOST_COPIES,
        )


def _measure(
    setting: _Setting,
    entrants: Sequence[_Entrant],
    faults: _Faults,
    report: Callable[[int, int], None],
) -> list[tuple[str, Timing]]:
    """Timings of each kernel, by symbol, with oneDNN on and off.

    Where stock failed, now or in an earlier step, that half of a timing is missing.
    """
    job = setting.job()
    halves: _Halves = {}
    report(0, 2 * len(entrants))
    for onednn in (True, False):
        chosen = [e for e in entrants if (*e.key, onednn) not in faults.stock]
        for done, (index, result) in enumerate(_results(job, chosen, onednn, faults), start=1):
            report(done + (0 if onednn else len(entrants)), 2 * len(entrants))
            key = chosen[index].key
            if (*key, onednn) in faults.stock:
                for epilogue in setting.epilogues:
                    halves.setdefault((*key, epilogue), {})
            if result.get("served_by") != key[0]:
                continue
            for way, epilogue in _EPILOGUES.items():
                ours, stock = (
                    result["samples"].get(f"{who} {way}".strip()) for who in ("ours", "stock")
                )
                if ours and stock:
                    halves.setdefault((*key, epilogue), {})[onednn] = duel(ours, stock)
    return list(_timings(setting, halves, faults))


def _timings(setting: _Setting, halves: _Halves, faults: _Faults) -> Iterator[tuple[str, Timing]]:
    """Those of which both halves are known, if only that stock failed."""
    for (symbol, matrices, epilogue), duels in halves.items():
        known = (on in duels or (symbol, matrices, on) in faults.stock for on in (True, False))
        if all(known):
            where = (matrices, setting.threads, setting.cache, epilogue)
            yield symbol, Timing(*where, onednn=duels.get(True), eigen=duels.get(False))


def _results(
    job: Job, entrants: Sequence[_Entrant], onednn: bool, faults: _Faults
) -> Iterator[tuple[int, dict[str, Any]]]:
    """What was measured of each entrant; nothing of one that ended its process."""
    start = 0
    while start < len(entrants):
        cases = tuple(entrant.case for entrant in entrants[start:])
        done, running = 0, ""
        try:
            for result in runner.results(replace(job, onednn=onednn, cases=cases), fused.MODULE):
                if "running" in result:
                    running = result["running"]
                    continue
                yield start + done, result
                done, running = done + 1, ""
        except runner.WorkerError as error:
            if not running:
                raise  # it does not work at all
            faults.note(entrants[start + done], running, str(error), onednn=onednn)
            yield start + done, {}
            done += 1
        start += done


class _Faults:
    """What ended the process that measures.

    Attributes
    ----------
    kernels
        Symbols of those that did.
    stock
        Symbol and number of matrices of products that stock did it at, and whether with oneDNN.
    """

    def __init__(self, notes: list[str]) -> None:
        self._notes = notes
        self.kernels: set[str] = set()
        self.stock: set[tuple[str, int, bool]] = set()

    def note(self, entrant: _Entrant, running: str, error: str, *, onednn: bool) -> None:
        """A kernel that is to blame is left out of the pack."""
        symbol = entrant.kernel.symbol
        if symbol in self.kernels:
            return
        if running.startswith("ours"):
            self.kernels.add(symbol)
            self._notes.append(f"left out {symbol}: in a graph, {entrant.case}: {error}")
        elif running == fused.TIMING:
            self._notes.append(f"not measured: {symbol}: while it was timed: {error}")
        else:
            self.stock.add((*entrant.key, onednn))
            setting = f"with oneDNN {'on' if onednn else 'off'}"
            self._notes.append(
                f"not measured {setting}, and serves there: {symbol}: stock failed: {error}"
            )


def duel(kernel: Sequence[float], stock: Sequence[float]) -> Duel:
    """From microseconds of the same rounds.

    What a run takes without the op has been taken off: of an op that takes next to nothing, noise
    can leave less than that.
    """
    low, _, high = statistics.quantiles((s - k for k, s in zip(kernel, stock)), n=4)
    kernel_us, stock_us = (max(LEAST_US, statistics.median(us)) for us in (kernel, stock))
    return Duel(kernel_us, stock_us, (high - low) / 2)


def _matrices(case: Case) -> int:
    return math.prod(case.out_shape[:-2])


def _advantage(timings: Iterable[Timing]) -> float:
    """How many times faster the kernel was than the better stock, in its worst setting."""
    ratios = [duel.stock_us / max(duel.kernel_us, 1e-3) for t in timings for duel in t.duels]
    return min(ratios, default=0.0)


def _serves(kernel: KernelEntry, timings: Sequence[Timing]) -> bool:
    """Whether the kernel would serve whatever was measured of it."""
    return replace(kernel, timings=_distinct(timings)).serves_everywhere


def _distinct(timings: Iterable[Timing]) -> tuple[Timing, ...]:
    """The last of those at the same setting, with what it lacks from those before."""
    found: dict[tuple[object, ...], Timing] = {}
    for t in timings:
        setting = (t.matrices, t.threads, t.cache, t.epilogue)
        before = found.get(setting, t)
        found[setting] = replace(t, onednn=t.onednn or before.onednn, eigen=t.eigen or before.eigen)
    return tuple(found.values())
