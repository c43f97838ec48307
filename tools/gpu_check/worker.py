"""The child process that uses the GPU: whatever a kernel does to it, the parent goes on.

It appends a line of JSON to a file for whatever it begins and ends, so that the parent knows what
was being done when it did not come back.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tf_tvm_ops.kernels.oracle import check_kernel
from tf_tvm_ops.kernels.runtime.device_memory import DeviceMemory
from tf_tvm_ops.tools.gpu_check import cases, machine
from tf_tvm_ops.tools.gpu_check.images import choose, kernels
from tf_tvm_ops.tools.gpu_check.session import ContextLostError, Session, guarded, one_line, opened
from tf_tvm_ops.tools.gpu_check.timing import Options, time_case

CONTEXT_LOST = 3
"""Exit status of a worker that cannot go on, but has said what happened."""

FAILED = 4
"""That of one that could not begin; the reason is the last line of its error output."""


class _Events:
    """The file of lines."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("a", encoding="utf-8")

    def write(self, event: str, item: str = "", result: Any = None) -> None:
        line = json.dumps({"event": event, "item": item, "result": result})
        self._file.write(line + "\n")
        self._file.flush()


def main(job_file: str) -> None:
    """Do what a file says, and end the process.

    Parameters
    ----------
    job_file
        JSON: ``work`` (a key of :data:`_WORK`), ``bundle``, ``items``, ``options``, ``deadline``
        (of the system's monotonic clock) and ``events``, the file to append to.
    """
    job = json.loads(Path(job_file).read_text(encoding="utf-8"))
    events = _Events(Path(job["events"]))
    bundle = Path(job["bundle"])
    status = 0
    try:
        with opened(bundle) as session:
            work = _WORK[job["work"]](session, bundle, job["options"])
            events.write("ready")
            for item in job["items"]:
                if time.monotonic() >= job["deadline"]:
                    break
                events.write("begin", item)
                events.write("end", item, work.do(item))
    except _LostError as error:
        events.write("end", error.item, error.result)
        status = CONTEXT_LOST
    except Exception as error:
        print(one_line(error), file=sys.stderr)
        status = FAILED
    # What is left over of a lost context may hang or crash the end of the process.
    sys.stderr.flush()
    os._exit(status)


class _LostError(Exception):
    """The GPU's context is lost; what was found about the item counts nevertheless."""

    def __init__(self, item: str, result: Any) -> None:
        super().__init__(item)
        self.item = item
        self.result = result


class _Describe:
    """One item, whatever its name: the machine."""

    def __init__(self, session: Session, bundle: Path, options: Mapping[str, Any]) -> None:
        self._session = session

    def do(self, item: str) -> dict[str, Any]:
        session = self._session
        return {
            "card": asdict(session.device),
            "driver_cuda": session.context.driver.version(),
            "targets": [image.target for image in session.usable],
            **machine.describe(),
        }


class _Check:
    """Items are kernels: the fault of each, "" if it has none."""

    def __init__(self, session: Session, bundle: Path, options: Mapping[str, Any]) -> None:
        self._session = session
        self._memory = DeviceMemory(session.context, session.stream)
        self._kernels = {choice.key: choice for choice in kernels(session.usable)}

    def do(self, item: str) -> str:
        choice = self._kernels[item]
        kernel = choice.kernel
        faults: list[str] = []

        def attempt() -> str:
            function = self._session.images.function(choice)
            self._memory.reset()
            return check_kernel(function, kernel.problem, kernel.workspace_bytes, self._memory)

        try:
            fault = guarded(self._session, attempt, faults.append)
        except ContextLostError:
            raise _LostError(item, faults[0]) from None
        return faults[0] if faults else str(fault)


class _Time:
    """Items are numbers of cases."""

    def __init__(self, session: Session, bundle: Path, options: Mapping[str, Any]) -> None:
        self._session = session
        self._cases = cases.read(bundle)
        self._ways = options["ways"]
        self._options = Options(**options["timing"])

    def do(self, item: str) -> dict[str, Any]:
        case = self._cases[int(item)]
        choice = choose(self._session.usable, case.problem)
        assert choice is not None, "the parent asks for cases that have a kernel"
        found: dict[str, Any] = {"symbol": choice.kernel.symbol, "measurements": [], "faults": {}}
        try:
            time_case(self._session, case, choice, self._ways, self._options, found)
        except ContextLostError:
            raise _LostError(item, found) from None
        return found


_WORK: Mapping[str, Any] = {"describe": _Describe, "check": _Check, "time": _Time}


def lines(path: Path) -> Iterator[dict[str, Any]]:
    """What a worker has written so far; a line that is not whole yet is left out."""
    if path.exists():
        for line in path.read_text(encoding="utf-8").splitlines(keepends=True):
            if line.endswith("\n"):
                yield json.loads(line)
