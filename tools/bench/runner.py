"""Spawning the workers of a benchmark and gathering what they measured."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tf_tvm_ops.kernels.tuning.machine import last_level_cache_bytes
from tf_tvm_ops.tools.bench.cases import Case
from tf_tvm_ops.tools.bench.worker import Job


@dataclass(frozen=True)
class Measurement:
    """One implementation of one product at one setting.

    Attributes
    ----------
    case
        The product.
    implementation
        ``"stock_onednn"``, ``"stock_eigen"`` or ``"ours"``.
    threads, cache
        The setting.
    onednn
        Whether the process had oneDNN on; it matters for ours where stock serves it.
    served_by
        The kernel that served ours.
    median_us, spread_us
        Microseconds for an op: median, and interquartile range.
    input_bytes
        Size of the inputs read in rotation.
    repeats, ops
        Runs of the graph, and ops in it.
    """

    case: Case
    implementation: str
    threads: int
    cache: str
    onednn: bool
    served_by: str
    median_us: float
    spread_us: float
    input_bytes: int
    repeats: int
    ops: int


class WorkerError(RuntimeError):
    """A worker ended with an error, for example because an answer was wrong."""


def run(
    cases: Sequence[Case],
    threads: Sequence[int],
    caches: Sequence[str],
    packs: Sequence[str],
    seconds: float,
    repeats: int,
    progress: Callable[[int, int], None],
) -> list[Measurement]:
    """Measure every product at every setting, in one process for each oneDNN and thread setting.

    Raises
    ------
    WorkerError
        If a worker failed; the message ends with what it printed.
    """
    job = make_job(cases, caches, packs, seconds, repeats)
    jobs = [replace(job, onednn=o, threads=t) for t in threads for o in (True, False)]
    total = len(jobs) * len(cases) * len(caches)
    measurements: list[Measurement] = []
    for index, job in enumerate(jobs):
        for done, result in enumerate(results(job), start=1):
            measurements += _measurements(job, result)
            progress(index * len(cases) * len(caches) + done, total)
    return measurements


def make_job(
    cases: Sequence[Case],
    caches: Sequence[str],
    packs: Sequence[str],
    seconds: float,
    repeats: int,
) -> Job:
    """For one thread, with oneDNN on."""
    return Job(
        onednn=True,
        threads=1,
        caches=tuple(caches),
        cold_bytes=2 * last_level_cache_bytes() + (1 << 20),
        seconds=seconds,
        repeats=repeats,
        packs=tuple(packs),
        cases=tuple(cases),
    )


def results(job: Job, module: str = "tf_tvm_ops.tools.bench.worker") -> Iterator[dict[str, Any]]:
    """What a process that runs ``module`` measures of ``job``.

    Raises
    ------
    WorkerError
        If it failed; the message ends with what it printed.
    """
    command = [sys.executable, "-m", module]
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        encoding="utf-8",
    ) as worker:
        assert worker.stdin is not None
        assert worker.stdout is not None
        assert worker.stderr is not None
        worker.stdin.write(job.dump())
        worker.stdin.close()
        for line in worker.stdout:
            yield json.loads(line)
        errors = worker.stderr.read()
    if worker.returncode != 0:
        tail = errors.strip().splitlines()[-1:] or ["no message"]
        raise WorkerError(
            f"the worker with oneDNN {'on' if job.onednn else 'off'} and {job.threads} threads "
            f"ended with code {worker.returncode}: {tail[0]}"
        )


def _measurements(job: Job, result: dict[str, Any]) -> Iterator[Measurement]:
    names = {"stock": "stock_onednn" if job.onednn else "stock_eigen", "ours": "ours"}
    for name, implementation in names.items():
        yield Measurement(
            case=job.cases[result["case"]],
            implementation=implementation,
            threads=job.threads,
            cache=result["cache"],
            onednn=job.onednn,
            served_by=result["served_by"],
            **result[name],
        )
