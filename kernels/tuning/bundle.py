"""Candidates in a folder, for a machine that has Python, NumPy and nothing else.

``emit`` makes it here, ``measure`` measures it there: :mod:`.detached`, which travels in it. What
comes back is a file of records like any other.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from .. import travel
from ..cuda.targets import is_cuda
from ..pool import Workers
from ..problem import Problem
from ..schedules import Choice
from . import detached
from .backend import Backend
from .detached import Entry
from .measurer import Group, Outcome
from .record import NOT_BUILT
from .search import State, Strategy

Report = Callable[[str, int, int], None]

_KERNELS = Path(travel.__file__).parent
_IMAGE_CANDIDATES = 96

MODULES = (
    *("arguments.py", "elements.py", "host_memory.py", "oracle.py", "problem.py", "targets.py"),
    *("runtime/cuda.py", "runtime/device_memory.py", "runtime/ffi.py", "runtime/libraries.py"),
    *("runtime/turns.py", "tuning/detached.py", "tuning/engine.py", "tuning/gpu_engine.py"),
    *("tuning/local.py", "tuning/machine.py", "tuning/measurer.py", "tuning/record.py"),
    *("tuning/timing.py", "tuning/worker.py", "tuning/workload.py"),
)
"""What travels: it needs NumPy alone."""

_RUN = '''"""Measures the kernels of this folder: see --help."""

import os
import sys

if __name__ == "__main__":
    here = os.path.dirname(os.path.abspath(__file__))
    # For the processes that run kernels, too.
    os.environ["PYTHONPATH"] = here
    sys.path.insert(0, here)
    from tf_tvm_ops.kernels.tuning.detached import main

    sys.exit(main([here, *sys.argv[1:]]))
'''


class BundleError(ValueError):
    """A bundle that cannot be made; the message says why."""


def emit(
    out: Path,
    backend: Backend,
    states: Sequence[State],
    strategy: Strategy,
    trials: int,
    jobs: int | None = None,
    report: Report = lambda step, done, total: None,
) -> int:
    """Compile candidates and put them in a new folder.

    Parameters
    ----------
    out
        The folder, which must not be there.
    backend
        Compiles for the target.
    states
        Workloads, with what is known of them: candidates measured before are left out.
    strategy
        Which candidates come first.
    trials
        Candidates of each workload.
    jobs
        Processes that compile; all cores if None.
    report
        Told of progress.

    Returns
    -------
    int
        Number of candidates in it.

    Raises
    ------
    BundleError, MissingLibraryError, BuildError, OSError
    """
    if out.exists():
        raise BundleError(f"{out} is there already; give another name or remove it")
    proposed = strategy.propose(states, trials)
    wanted = [
        (state, choice) for state, choices in zip(states, proposed) for choice in choices[:trials]
    ]
    if not wanted:
        raise BundleError("nothing to measure: every candidate is in the records already")
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{out.name}-", dir=out.parent) as folder:
        staged = Path(folder, out.name)
        travel.copy_libraries(staged / detached.LIBRARIES, cuda=is_cuda(backend.name))
        travel.copy_modules(staged, {_KERNELS / name: f"kernels/{name}" for name in MODULES})
        faults = _compile(backend, wanted, jobs, report)
        entries = list(_images(backend, wanted, faults, staged / detached.IMAGES))
        document = {
            "schema": detached.SCHEMA,
            "target": backend.name,
            "code": backend.code,
            "versions": dict(backend.versions),
            "entries": [entry.to_json() for entry in entries],
        }
        (staged / detached.FILE_NAME).write_text(json.dumps(document), encoding="utf-8")
        (staged / "run.py").write_text(_RUN, encoding="utf-8")
        os.rename(staged, out)
    return sum(len(entry.group.trials) for entry in entries)


def _compile(
    backend: Backend,
    wanted: Sequence[tuple[State, Choice]],
    jobs: int | None,
    report: Report,
) -> dict[tuple[Problem, Choice], str]:
    candidates = [(state.workload.problem, choice) for state, choice in wanted]
    faults: dict[tuple[Problem, Choice], str] = {}
    report("compile", 0, len(candidates))
    with Workers(jobs) as workers:
        for candidate, fault in backend.compile(workers, candidates):
            faults[candidate] = fault
            report("compile", len(faults), len(candidates))
    for state, choice in wanted:
        fault = faults[state.workload.problem, choice]
        if fault:
            state.outcomes[choice] = Outcome(NOT_BUILT, message=fault)
    return faults


def _images(
    backend: Backend,
    wanted: Sequence[tuple[State, Choice]],
    faults: dict[tuple[Problem, Choice], str],
    folder: Path,
) -> list[Entry]:
    """Link the candidates, those of a workload into one image."""
    folder.mkdir()
    by_workload: dict[int, tuple[State, list[Choice]]] = {}
    for state, choice in wanted:
        if not faults[state.workload.problem, choice]:
            by_workload.setdefault(id(state), (state, []))[1].append(choice)
    entries: list[Entry] = []
    batch: list[tuple[State, list[Choice]]] = []
    work = list(by_workload.values())
    for place, item in enumerate(work):
        batch.append(item)
        count = sum(len(choices) for _, choices in batch)
        if count < _IMAGE_CANDIDATES and place + 1 < len(work):
            continue
        name = f"{len(list(folder.iterdir()))}.so"
        candidates = [(state.workload.problem, c) for state, choices in batch for c in choices]
        backend.link(candidates, folder / name)
        for state, choices in batch:
            trials = tuple(backend.trial((state.workload.problem, c)) for c in choices)
            configs = tuple(choice.to_json() for choice in choices)
            entries.append(Entry(Group(name, state.workload, trials), configs))
        batch = []
    return entries
