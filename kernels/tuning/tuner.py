"""The search: waves of candidates for all workloads, each compiled, checked, timed and recorded.

All workloads advance together, so that a budget that runs out has been shared evenly. Each wave is
compiled on all cores first and measured afterwards, when nothing else runs. The best candidate so
far of a workload is timed again in each of its groups, so that a comparison is always within one.
"""

from __future__ import annotations

import itertools
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..pool import Workers
from ..problem import Problem
from ..schedules import Choice
from . import record
from .backend import TRANSIENT, Backend
from .measurer import Group, Measurer, Outcome
from .record import NOT_BUILT, Record
from .search import State, Strategy
from .workload import Workload

Report = Callable[[str, int, int], None]

_WAVE = 6
"""Candidates for a workload in one wave."""

_IMAGE_CANDIDATES = 96
"""More make a link no faster, and lose more when the search is interrupted."""

_FINALISTS = 3
_FINAL_SAMPLES = 25
_FINAL_MARGIN = 1.1
"""Candidates within this factor of the best are timed again, at leisure, before one is taken."""


@dataclass(frozen=True)
class Limits:
    """When a search ends, at the latest.

    Attributes
    ----------
    trials
        Candidates measured for each workload, earlier runs included.
    seconds
        Of this run; None for no limit.
    """

    trials: int
    seconds: float | None = None


@dataclass(frozen=True)
class Found:
    """The result for one workload.

    Attributes
    ----------
    state
        All that was measured.
    """

    state: State

    @property
    def choice(self) -> Choice | None:
        """The fastest candidate; None if none was timed."""
        return self.state.best


class Tuner:
    """Searches for the fastest candidate of each workload of one target.

    Parameters
    ----------
    backend
        Compiles candidates.
    measurer
        Checks and times them.
    records
        File of measurements, which are reused and added to.
    report
        Told of progress: step, done, total.
    """

    def __init__(
        self,
        backend: Backend,
        measurer: Measurer,
        records: Path,
        report: Report = lambda step, done, total: None,
    ) -> None:
        self._backend = backend
        self._measurer = measurer
        self._records = records
        self._report = report

    def run(
        self,
        workloads: Sequence[Workload],
        strategy: Strategy,
        limits: Limits,
        jobs: int | None = None,
    ) -> list[Found]:
        """Search until the strategy proposes nothing more, or a limit is reached.

        Parameters
        ----------
        workloads
            What is computed; those that no rule serves are left out.
        strategy
            Which candidates come next.
        limits
            When to stop.
        jobs
            Processes that compile; all cores if None.

        Raises
        ------
        RecordError, BuildError, MeasureError
        """
        end = time.monotonic() + limits.seconds if limits.seconds is not None else None
        machine = self._measurer.machine
        states = known(self._backend, machine, record.read(self._records), workloads)
        touched: set[int] = set()
        with Workers(jobs) as workers:
            for number in itertools.count(1):
                proposed = strategy.propose(states, _WAVE)
                wave = [
                    (index, choice)
                    for index, (state, choices) in enumerate(zip(states, proposed))
                    for choice in choices[: max(0, limits.trials - len(state.outcomes))]
                ]
                if not wave:
                    break
                touched.update(index for index, _ in wave)
                if not self._wave(workers, states, wave, f"wave {number}", end):
                    break
        self._finals([states[index] for index in sorted(touched)])
        return [Found(state) for state in states]

    def _wave(
        self,
        workers: Workers,
        states: Sequence[State],
        wave: Sequence[tuple[int, Choice]],
        name: str,
        end: float | None,
    ) -> bool:
        """Compile and measure; False if time ran out."""
        problems = [(states[index].workload.problem, choice) for index, choice in wave]
        faults: dict[tuple[Problem, Choice], str] = {}
        self._report(f"compile {name}", 0, len(wave))
        for candidate, fault in self._backend.compile(workers, problems):
            faults[candidate] = fault
            self._report(f"compile {name}", len(faults), len(wave))
            if _over(end):
                break
        by_state: dict[int, list[Choice]] = {}
        for index, choice in wave:
            candidate = (states[index].workload.problem, choice)
            if candidate not in faults:  # no time was left to compile it
                continue
            if faults[candidate]:
                self._note(states[index], {choice: Outcome(NOT_BUILT, message=faults[candidate])})
            else:
                by_state.setdefault(index, []).append(choice)
        measured = 0
        self._report(f"measure {name}", 0, len(by_state))
        for chunk in _chunks(by_state):
            work = [(states[index], choices) for index, choices in chunk]
            for _ in self._measure(work):
                measured += 1
                self._report(f"measure {name}", measured, len(by_state))
            if _over(end):
                return False
        return not _over(end)

    def _finals(self, states: Sequence[State]) -> None:
        """Time the best few of each workload again, side by side."""
        work = []
        for state in states:
            ranked = state.ranked()[:_FINALISTS]
            if ranked:
                limit = _FINAL_MARGIN * state.outcomes[ranked[0]].median_us
                ranked = [c for c in ranked if state.outcomes[c].median_us <= limit]
            if len(ranked) > 1:
                work.append((state, ranked))
        done = 0
        self._report("finals", 0, len(work))
        for start in range(0, len(work), _IMAGE_CANDIDATES // _FINALISTS):
            part = work[start : start + _IMAGE_CANDIDATES // _FINALISTS]
            for _ in self._measure(part, _FINAL_SAMPLES):
                done += 1
                self._report("finals", done, len(work))

    def _measure(
        self, work: Sequence[tuple[State, Sequence[Choice]]], samples: int = 9
    ) -> Iterator[State]:
        """Time candidates that were compiled; each workload once it is done."""
        with tempfile.TemporaryDirectory(prefix="tf-tvm-ops-tune-") as folder:
            image = Path(folder, "candidates.so")
            groups: dict[Workload, Group] = {}
            owners: dict[Workload, tuple[State, list[Choice]]] = {}
            linked: list[tuple[Problem, Choice]] = []
            for state, choices in work:
                best = state.best
                entrants = list(choices)
                if best is not None and best not in entrants:
                    entrants.append(best)
                candidates = [(state.workload.problem, choice) for choice in entrants]
                linked += candidates
                trials = tuple(self._backend.trial(candidate) for candidate in candidates)
                groups[state.workload] = Group(str(image), state.workload, trials, samples)
                owners[state.workload] = (state, entrants)
            self._backend.link(list(dict.fromkeys(linked)), image)
            for group, outcomes in self._measurer.measure(list(groups.values())):
                state, entrants = owners[group.workload]
                self._note(state, dict(zip(entrants, outcomes)))
                yield state

    def _note(self, state: State, outcomes: Mapping[Choice, Outcome]) -> None:
        state.outcomes.update(outcomes)
        record.append(
            self._records,
            (
                Record(
                    workload=state.workload,
                    config=choice.to_json(),
                    target=self._backend.name,
                    code=self._backend.code,
                    machine=self._measurer.machine,
                    versions=self._backend.versions,
                    status=outcome.status,
                    median_us=outcome.median_us,
                    spread_us=outcome.spread_us,
                    message=outcome.message,
                )
                for choice, outcome in outcomes.items()
            ),
        )


def known(
    backend: Backend,
    machine: str,
    records: Mapping[str, Record],
    workloads: Sequence[Workload],
) -> list[State]:
    """What was measured of each workload that a rule serves, for a target on a machine."""
    found: dict[Workload, list[Record]] = {}
    for each in record.of_target(records, backend.name, backend.code, machine):
        found.setdefault(each.workload, []).append(each)
    states = []
    for workload in workloads:
        state = State(workload, backend.space(workload.problem))
        choices = {_name(c.choice): c.choice for c in state.space}
        for each in found.get(workload, ()):
            choice = choices.get(_config_name(each.config))
            if choice is not None and each.message not in TRANSIENT:
                outcome = (each.status, each.median_us, each.spread_us, each.message)
                state.outcomes[choice] = Outcome(*outcome)
        if state.space:
            states.append(state)
    return states


def _chunks(by_state: Mapping[int, list[Choice]]) -> Iterator[list[tuple[int, list[Choice]]]]:
    chunk: list[tuple[int, list[Choice]]] = []
    count = 0
    for index, choices in by_state.items():
        if chunk and count + len(choices) > _IMAGE_CANDIDATES:
            yield chunk
            chunk, count = [], 0
        chunk.append((index, choices))
        count += len(choices)
    if chunk:
        yield chunk


def _over(end: float | None) -> bool:
    return end is not None and time.monotonic() >= end


def _name(choice: Choice) -> str:
    return _config_name(choice.to_json())


def _config_name(config: Mapping[str, object]) -> str:
    return str(sorted(config.items()))
