"""Runs workers on lists of items, each until a deadline: a new one where the last was lost."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tf_tvm_ops.tools.gpu_check import worker

_POLL_SECONDS = 0.05
_START_SECONDS = 60.0
_GRACE_SECONDS = 5.0

RUN_FILE = "run.py"


@dataclass
class Outcome:
    """What became of the items of a part.

    Attributes
    ----------
    results
        By item, in the order in which they were done.
    crashed
        What happened to workers, by the item that they were at.
    not_reached
        Items left over at the deadline.
    seconds, limit_seconds
        Time it took, and might have taken.
    workers
        Processes that were started.
    problem
        Why items were given up before the deadline, ``""`` if they were not.
    """

    results: dict[str, Any] = field(default_factory=dict)
    crashed: dict[str, str] = field(default_factory=dict)
    not_reached: list[str] = field(default_factory=list)
    seconds: float = 0.0
    limit_seconds: float = 0.0
    workers: int = 0
    problem: str = ""


def run(
    bundle: Path,
    work: str,
    items: Sequence[str],
    *,
    deadline: float,
    item_seconds: float,
    options: Mapping[str, Any] | None = None,
    environment: Mapping[str, str] | None = None,
) -> Outcome:
    """Do the items, in their order.

    Parameters
    ----------
    bundle
        Folder of the bundle.
    work
        What workers do: a key of the worker's table.
    items
        Distinct names.
    deadline
        Of the monotonic clock: no item is begun after it.
    item_seconds
        An item that takes longer has failed.
    options
        For the worker.
    environment
        For the worker, besides this process's.
    """
    start = time.monotonic()
    outcome = Outcome(limit_seconds=round(max(0.0, deadline - start), 1))
    left = list(items)
    with tempfile.TemporaryDirectory(prefix="tf-tvm-ops-gpu-check-") as folder:
        while left and time.monotonic() < deadline and not outcome.problem:
            job = {
                "work": work,
                "bundle": str(bundle),
                "items": left,
                "options": dict(options or {}),
                "deadline": deadline,
            }
            child = _Child(bundle, job, Path(folder), outcome.workers, environment or {})
            outcome.workers += 1
            ending = child.watch(deadline, item_seconds)
            _take(child, ending, left, outcome)
    outcome.not_reached = left
    outcome.seconds = round(time.monotonic() - start, 1)
    return outcome


def _take(child: _Child, ending: str, left: list[str], outcome: Outcome) -> None:
    """Move what a worker has done from ``left`` to the outcome."""
    begun, progress = "", False
    for line in worker.lines(child.events):
        if line["event"] == "begin":
            begun = line["item"]
        elif line["event"] == "end":
            begun, progress = "", True
            outcome.results[line["item"]] = line["result"]
            left.remove(line["item"])
    if begun and ending:
        outcome.crashed[begun] = ending
        left.remove(begun)
    elif left and not progress and ending != "":
        # Another worker would do no better.
        outcome.problem = ending


class _Child:
    """One worker."""

    def __init__(
        self,
        bundle: Path,
        job: dict[str, Any],
        folder: Path,
        number: int,
        environment: Mapping[str, str],
    ) -> None:
        self.events = folder / f"events-{number}.jsonl"
        self._errors = folder / f"errors-{number}.txt"
        job_file = folder / f"job-{number}.json"
        job_file.write_text(json.dumps({**job, "events": str(self.events)}), encoding="utf-8")
        command = [sys.executable, str(bundle / RUN_FILE), "--worker", str(job_file)]
        with self._errors.open("w") as errors:
            # Compilers of peers talk on standard output, too.
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=errors,
                stderr=errors,
                env={**os.environ, **environment},
            )

    def watch(self, deadline: float, item_seconds: float) -> str:
        """Wait for the end. Says what went wrong, ``""`` if nothing did."""
        seen, changed = 0, time.monotonic()
        try:
            while True:
                try:
                    return self._explain(self._process.wait(_POLL_SECONDS))
                except subprocess.TimeoutExpired:
                    pass
                now = time.monotonic()
                size = self.events.stat().st_size if self.events.exists() else 0
                if size != seen:
                    seen, changed = size, now
                allowed = item_seconds if seen else max(_START_SECONDS, item_seconds)
                if now - changed > allowed:
                    return f"did not end within {allowed:.0f} s"
                if now > deadline + _GRACE_SECONDS:
                    # Not the item's fault: it is left over.
                    return ""
        finally:
            if self._process.poll() is None:
                self._process.kill()
                self._process.wait()

    def _explain(self, status: int) -> str:
        if status in (0, worker.CONTEXT_LOST):
            return ""
        lines = self._errors.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        last = lines[-1].strip() if lines else "no message"
        if status == worker.FAILED:
            return last
        ended = f"signal {-status}" if status < 0 else f"status {status}"
        return f"ended the process that ran it ({ended}): {last}"
