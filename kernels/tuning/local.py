"""Measuring on this machine, in a process of its own that is pinned to a core."""

from __future__ import annotations

import json
import math
import queue
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from typing import Any

from . import machine
from .measurer import Group, MeasureError, Outcome
from .record import CRASHED, TIMED_OUT, WRONG

DEADLINE_SECONDS = 20.0
"""For a candidate to be checked, and each time it is run; the slowest take a hundredth of it."""

_GPU_COLD_BYTES = 256 << 20
_WORKER = f"{__package__}.worker"
_ORPHAN_DEADLINES = 2.0
"""A process whose watcher was killed ends itself after this many deadlines."""


class LocalMeasurer(AbstractContextManager["LocalMeasurer"]):
    """See :class:`~.measurer.Measurer`. Close it, or use it in a ``with``.

    Parameters
    ----------
    deadline
        Seconds after which a candidate is given up.
    device
        ``"cpu"``, or ``"cuda"`` for the first GPU.
    libraries
        Folder of the C libraries that kernels need; None for those of installed packages.

    Raises
    ------
    MeasureError
        If there is no GPU, or no driver, and one is asked for.
    """

    def __init__(
        self,
        deadline: float = DEADLINE_SECONDS,
        device: str = "cpu",
        libraries: str | None = None,
    ) -> None:
        self._deadline = deadline
        settings: dict[str, Any] = {
            "device": device,
            "folder": libraries,
            "seconds": math.ceil(_ORPHAN_DEADLINES * deadline),
        }
        if device == "cuda":
            self.machine = _gpu()
            settings["cold_bytes"] = _GPU_COLD_BYTES
        else:
            self.machine = machine.processor()
            settings["cold_bytes"] = 2 * machine.last_level_cache_bytes()
            # The last core: the first ones have more of the system's own work.
            settings["core"] = machine.cores()[-1]
        self._command = [sys.executable, "-m", _WORKER, json.dumps(settings)]
        self._worker: _Worker | None = None

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the process."""
        if self._worker is not None:
            self._worker.end()
            self._worker = None

    def measure(self, groups: Sequence[Group]) -> Iterator[tuple[Group, list[Outcome]]]:
        """See :class:`~.measurer.Measurer`."""
        for group in groups:
            yield group, self._measure(group)

    def _measure(self, group: Group) -> list[Outcome]:
        """Leaves out a candidate that ended the process, and starts again with the others."""
        failed: dict[int, Outcome] = {}
        while len(failed) < len(group.trials):
            left = [i for i in range(len(group.trials)) if i not in failed]
            attempt = replace(group, trials=tuple(group.trials[index] for index in left))
            answer = self._run(attempt)
            if isinstance(answer, list):
                if any(outcome.status == WRONG for outcome in answer):
                    self.close()  # who knows where else it has written
                found = dict(zip(left, answer)) | failed
                return [found[index] for index in range(len(group.trials))]
            self.close()
            place, outcome = answer
            failed[left[place]] = outcome
        return [failed[index] for index in range(len(group.trials))]

    def _run(self, group: Group) -> list[Outcome] | tuple[int, Outcome]:
        if self._worker is not None:
            try:
                return self._worker.run(group, self._deadline)
            except MeasureError:
                # It ended before it began with this group: of what it had run before.
                self.close()
        self._worker = _Worker(self._command)
        return self._worker.run(group, self._deadline)


def _gpu() -> str:
    from . import gpu_engine

    try:
        return gpu_engine.describe()
    except (OSError, RuntimeError) as error:
        raise MeasureError(
            f"no GPU to measure on: {error}; measure on a machine that has one: see tune --emit"
        ) from error


class _Worker:
    """The process, and a thread that reads what it says."""

    def __init__(self, command: Sequence[str]) -> None:
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 (lives as long as the process)
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            encoding="utf-8",
        )
        self._lines: queue.Queue[str | None] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line)
        self._lines.put(None)

    def run(self, group: Group, deadline: float) -> list[Outcome] | tuple[int, Outcome]:
        """Outcomes of all candidates, or which one ended the process, and how."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(group.to_json()) + "\n")
            self._process.stdin.flush()
        except OSError:
            pass  # it has ended: the reader says so
        current: int | None = None
        while True:
            try:
                line = self._lines.get(timeout=deadline)
            except queue.Empty:
                message = f"not done after {deadline:g} s"
                return self._blame(current, Outcome(TIMED_OUT, message=message))
            if line is None:
                self._process.wait()
                return self._blame(current, Outcome(CRASHED, message=self._ending()))
            said: dict[str, Any] = json.loads(line)
            if "outcomes" in said:
                return [Outcome(**fields) for fields in said["outcomes"]]
            current = said["starting"]

    def _blame(self, current: int | None, outcome: Outcome) -> tuple[int, Outcome]:
        if current is None:
            raise MeasureError(f"the process that measures does not work here: {outcome.message}")
        return current, outcome

    def _ending(self) -> str:
        code = self._process.returncode
        if code < 0:
            try:
                return f"ended by {signal.Signals(-code).name}"
            except ValueError:
                return f"ended by signal {-code}"
        return f"ended with code {code}{self._last_error()}"

    def _last_error(self) -> str:
        self._errors.seek(0)
        lines = self._errors.read().decode(errors="replace").strip().splitlines()
        return f": {lines[-1]}" if lines else ""

    def end(self) -> None:
        """Kill it: it holds nothing worth keeping."""
        self._process.kill()
        self._process.wait()
        self._reader.join()
        self._errors.close()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            with suppress(OSError):  # what it was not told any more
                pipe.close()
