"""The search end to end, with real compilers and processes: kernels/tuning/tuner.py."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import pytest

from tf_tvm_ops.kernels.pool import Workers
from tf_tvm_ops.kernels.problem import Problem
from tf_tvm_ops.kernels.schedules import choose
from tf_tvm_ops.kernels.targets import TARGETS
from tf_tvm_ops.kernels.tuning import record, tuner
from tf_tvm_ops.kernels.tuning.backend import LATE, CpuBackend
from tf_tvm_ops.kernels.tuning.local import LocalMeasurer
from tf_tvm_ops.kernels.tuning.measurer import Group, Outcome
from tf_tvm_ops.kernels.tuning.search import STRATEGIES, BruteForce, Guided
from tf_tvm_ops.kernels.tuning.tuner import Limits, Tuner, known
from tf_tvm_ops.kernels.tuning.workload import Workload

from .conftest import SMALL
from .faulty import FaultyBackend

WORKLOADS = [SMALL, Workload(Problem(4, 6, 4, rhs="k"), 4), Workload(Problem(2, 17, 16), 4)]


class Counting:
    """A measurer that counts what it is asked, and may do something before each group."""

    def __init__(self, measurer: LocalMeasurer, before=lambda group: None) -> None:
        self.machine = measurer.machine
        self.trials = 0
        self._measurer = measurer
        self._before = before

    def measure(self, groups: Sequence[Group]) -> Iterator[tuple[Group, list[Outcome]]]:
        for group in groups:
            self._before(group)
            self.trials += len(group.trials)
            yield from self._measurer.measure([group])


@pytest.fixture
def backend(fast_target, cache):
    return CpuBackend(fast_target, cache)


@pytest.fixture
def records(tmp_path) -> Path:
    return tmp_path / "records.jsonl"


def test_guided_search_is_recorded_and_reused(backend, local, records):
    measurer = Counting(local)
    found = Tuner(backend, measurer, records).run(WORKLOADS, Guided(), Limits(8), jobs=1)
    assert [f.state.workload for f in found] == WORKLOADS
    for result in found:
        outcomes = result.state.outcomes
        assert 2 <= len(outcomes) <= 8
        assert all(outcome.ok for outcome in outcomes.values())
        # No slower than what is taken without tuning, of which two measurements may differ.
        first = choose(result.state.workload.problem, TARGETS[backend.name])
        assert outcomes[result.choice].median_us <= outcomes[first].median_us
    lines = record.read(records)
    assert len(lines) == sum(len(f.state.outcomes) for f in found)
    assert {line.machine for line in lines.values()} == {local.machine}

    again = Counting(local)
    reused = Tuner(backend, again, records).run(WORKLOADS, Guided(), Limits(8), jobs=1)
    assert again.trials == 0
    assert [f.choice for f in reused] == [f.choice for f in found]
    assert [f.state.outcomes for f in reused] == [f.state.outcomes for f in found]
    assert record.read(records) == lines


@pytest.mark.parametrize("name", STRATEGIES)
def test_every_strategy_measures_what_is_right(name, backend, local, records):
    workload = Workload(Problem(4, 6, 4, rhs="k"), 4)
    (found,) = Tuner(backend, local, records).run([workload], STRATEGIES[name](), Limits(4), jobs=1)
    assert len(found.state.outcomes) == 4
    assert all(outcome.ok for outcome in found.state.outcomes.values())


def test_brute_force_exhausts_the_space(backend, local, records):
    (found,) = Tuner(backend, local, records).run(WORKLOADS[:1], BruteForce(), Limits(99), jobs=1)
    assert set(found.state.outcomes) == {c.choice for c in backend.space(SMALL.problem)}
    # As many waves as it takes, each with the best so far.
    assert len(found.state.outcomes) > tuner._WAVE


def test_measurements_of_other_code_or_machines_do_not_count(backend, local, records):
    Tuner(backend, local, records).run(WORKLOADS[:1], BruteForce(), Limits(2), jobs=1)
    lines = [json.loads(line) for line in records.read_text().splitlines()]
    for field in ("code", "machine", "target"):
        changed = [line | {field: "another"} for line in lines]
        records.write_text("".join(json.dumps(line) + "\n" for line in changed))
        (state,) = known(backend, local.machine, record.read(records), WORKLOADS[:1])
        assert state.outcomes == {}


def test_trials_are_limited_over_all_runs(backend, local, records):
    for trials, new in ((3, 3), (5, 2), (4, 0)):
        measurer = Counting(local)
        before = len(record.read(records))
        (found,) = Tuner(backend, measurer, records).run(
            WORKLOADS[:1], BruteForce(), Limits(trials), jobs=1
        )
        assert len(record.read(records)) - before == new
        assert len(found.state.outcomes) == max(3, before + new)


def test_time_is_limited(backend, local, records):
    slow = Counting(local, before=lambda group: time.sleep(0.3))
    start = time.monotonic()
    found = Tuner(backend, slow, records).run(WORKLOADS, BruteForce(), Limits(99, 0.6), jobs=1)
    assert 0.6 < time.monotonic() - start < 60
    assert all(len(f.state.outcomes) <= tuner._WAVE < len(f.state.space) for f in found)


def test_faulty_candidates_are_recorded_and_the_others_measured(
    fast_target, cache, impatient, records, monkeypatch
):
    faults = ["", "raises", "compiler_killed", "wrong", "crashes", "", "compiler_hangs", "hangs"]
    backend = FaultyBackend(fast_target, cache, faults)
    problem = Problem(2, 3, 5)  # whose candidates no other test has compiled
    monkeypatch.setattr(tuner, "Workers", partial(Workers, deadline=3.0))
    # Of the two that are right, one may come close to the other or not: no finals.
    monkeypatch.setattr(tuner, "_FINAL_MARGIN", 0.0)
    (found,) = Tuner(backend, impatient, records).run(
        [Workload(problem, 4)], BruteForce(), Limits(99), jobs=1
    )
    statuses = {c.config.number: outcome for c, outcome in found.state.outcomes.items()}
    expected = {
        "": ("ok", ""),
        "raises": ("not_built", "ValueError: no such tile"),
        "compiler_killed": ("not_built", "the compiler was killed"),
        "compiler_hangs": ("not_built", "the compiler did not end in time"),
        "wrong": ("wrong", ""),
        "crashes": ("crashed", "ended by SIGSEGV"),
        "hangs": ("timed_out", "not done after 3 s"),
    }
    for number, fault in enumerate(faults):
        status, message = expected[fault]
        assert statuses[number].status == status, fault
        assert message in statuses[number].message
    written = {line.config["number"]: line.status for line in record.read(records).values()}
    assert written == {number: outcome.status for number, outcome in statuses.items()}
    # None of them is tried again.
    measurer = Counting(impatient)
    Tuner(backend, measurer, records).run([Workload(problem, 4)], BruteForce(), Limits(99), jobs=1)
    assert measurer.trials == 0


_KILLED = """
import sys
from pathlib import Path
from tests.tvm.tuning.test_tuner import WORKLOADS
from tf_tvm_ops.kernels.targets import TARGETS
from tf_tvm_ops.kernels.tuning.backend import CpuBackend
from tf_tvm_ops.kernels.tuning.local import LocalMeasurer
from tf_tvm_ops.kernels.tuning.search import BruteForce
from tf_tvm_ops.kernels.tuning.tuner import Limits, Tuner

if __name__ == "__main__":
    target, cache, records = sys.argv[1:]
    with LocalMeasurer() as measurer:
        tuner = Tuner(CpuBackend(TARGETS[target], Path(cache)), measurer, Path(records))
        tuner.run(WORKLOADS, BruteForce(), Limits(99), jobs=1)
"""


def test_search_that_was_killed_is_resumed(backend, local, records, cache, tmp_path):
    script = tmp_path / "tune.py"
    script.write_text(_KILLED)
    process = subprocess.Popen(
        [sys.executable, str(script), backend.name, str(cache), str(records)],
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[3])},
    )
    end = time.monotonic() + 60
    while time.monotonic() < end and not (records.exists() and records.stat().st_size):
        assert process.poll() is None
        time.sleep(0.002)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    before = record.read(records)
    total = sum(len(backend.space(w.problem)) for w in WORKLOADS)
    assert 0 < len(before) < total

    states = known(backend, local.machine, record.read(records), WORKLOADS)
    measured = sum(len(s.outcomes) for s in states)
    assert measured == len(before)
    start = records.stat().st_size
    found = Tuner(backend, local, records).run(WORKLOADS, BruteForce(), Limits(99), jobs=1)
    assert sum(len(f.state.outcomes) for f in found) == total
    added = records.read_bytes()[start:].splitlines()
    again = {record.Record.from_json(json.loads(line)).key for line in added} & set(before)
    # Only the best of a workload is measured again, beside others; and finalists.
    assert len(again) <= tuner._FINALISTS * len(WORKLOADS)


def test_best_of_an_earlier_run_is_compiled_again_for_another_cache(
    backend, local, records, tmp_path, fast_target
):
    Tuner(backend, local, records).run(WORKLOADS[:1], BruteForce(), Limits(2), jobs=1)
    other = CpuBackend(fast_target, tmp_path / "other")
    (found,) = Tuner(other, local, records).run(WORKLOADS[:1], BruteForce(), Limits(3), jobs=1)
    assert len(found.state.outcomes) == 3
    assert all(outcome.ok for outcome in found.state.outcomes.values())


def test_what_a_busy_machine_did_not_compile_is_tried_again(backend, local, records, monkeypatch):
    real = backend.compile
    late = [LATE]

    def once_late(workers, candidates):
        for candidate, fault in real(workers, candidates):
            yield candidate, late.pop() if late else fault

    monkeypatch.setattr(backend, "compile", once_late)
    (found,) = Tuner(backend, local, records).run(WORKLOADS[:1], BruteForce(), Limits(2), jobs=1)
    assert sorted(o.ok for o in found.state.outcomes.values()) == [False, True]
    (state,) = known(backend, local.machine, record.read(records), WORKLOADS[:1])
    assert [outcome.ok for outcome in state.outcomes.values()] == [True]
