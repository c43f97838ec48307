"""MetaSchedule's evolutionary search over our spaces: tuning/search/evolutionary.py."""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from tvm.s_tir import Schedule

from tf_tvm_ops.kernels.problem import Problem
from tf_tvm_ops.kernels.schedules import Choice, Config, Rule
from tf_tvm_ops.kernels.targets import TARGETS
from tf_tvm_ops.kernels.tuning.measurer import Outcome
from tf_tvm_ops.kernels.tuning.record import CRASHED, OK
from tf_tvm_ops.kernels.tuning.search import Evolutionary, State
from tf_tvm_ops.kernels.tuning.space import Candidate, space
from tf_tvm_ops.kernels.tuning.workload import Workload

TARGET = TARGETS["cpu:x86-64-v4"]
PROBLEM = Problem(17, 40, 64, rhs="k")


@dataclass(frozen=True)
class LargeConfig(Config):
    rows: int
    columns: int
    order: str
    depth: int


class Large(Rule[LargeConfig]):
    """A space of thousands, part of whose combinations are not legal."""

    name = "cpu_large"
    config_type = LargeConfig

    def refusal(self, problem, target) -> None:
        return None

    def space(self, problem, target) -> Iterator[LargeConfig]:
        for rows in range(1, 25):
            for columns in range(1, 17):
                if rows * columns <= 128:
                    for order in ("kmn", "mkn", "mnk", "nmk"):
                        for depth in (1, 2, 4, 8):
                            yield LargeConfig(rows, columns, order, depth)

    def cost(self, problem, target, config) -> float:
        """Knows that larger tiles are better, and nothing else."""
        return 1.0 + 1.0 / config.rows + 1.0 / config.columns

    def emit(self, matrix, target, config) -> None:
        raise NotImplementedError


def large() -> State:
    rule = Large()
    candidates = [
        Candidate(Choice(rule, config), rule.cost(PROBLEM, TARGET, config))
        for config in rule.space(PROBLEM, TARGET)
    ]
    return State(Workload(PROBLEM, 8), sorted(candidates, key=lambda c: c.cost))


def bumpy(choice: Choice) -> Outcome:
    """Best at one tile, in one order; the knobs do not act alone."""
    c = choice.config
    far = abs(math.log2(c.rows / 7)) + abs(math.log2(c.columns / 5)) + 0.3 * abs(c.rows - c.columns)
    order = {"kmn": 1.6, "mkn": 1.0, "mnk": 1.3, "nmk": 2.0}[c.order]
    return Outcome(OK, (10 + 6 * far) * order * (1 + 0.1 * abs(math.log2(c.depth / 4))))


def real() -> State:
    return State(Workload(PROBLEM, 8), space(PROBLEM, TARGET))


def search(strategy, state: State, time_of, trials: int, most: int = 6) -> list[Choice]:
    """What is proposed, in order."""
    order: list[Choice] = []
    while len(state.outcomes) < trials:
        (proposed,) = strategy.propose([state], most)
        if not proposed:
            break
        assert len(proposed) <= most
        assert len(set(proposed)) == len(proposed)
        assert not set(proposed) & set(state.outcomes)
        assert set(proposed) <= {c.choice for c in state.space}
        for choice in proposed:
            state.outcomes[choice] = time_of(choice)
        order += proposed
    return order


@pytest.mark.parametrize("seed", [0, 1])
def test_finds_the_best_of_a_large_space_with_a_few_trials(seed):
    state = large()
    best = min(bumpy(c.choice).median_us for c in state.space)
    first = bumpy(state.space[0].choice).median_us
    assert first > 2 * best  # the model alone does not do
    search(Evolutionary(seed), state, bumpy, 150)
    assert len(state.outcomes) <= 156 < len(state.space) / 20
    assert state.outcomes[state.best].median_us <= 1.1 * best


def test_same_seed_same_proposals():
    runs = [search(Evolutionary(seed), large(), bumpy, 30) for seed in (5, 5, 6)]
    names = [[str(choice.config) for choice in run] for run in runs]
    assert names[0] == names[1]
    assert names[0] != names[2]


def test_same_proposals_in_another_process():
    code = (
        "from tests.tvm.tuning.test_evolutionary import *\n"
        "print([c.config.stem() for c in search(Evolutionary(5), large(), bumpy, 12)])"
    )
    runs = [
        subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
        for _ in range(2)
    ]
    assert len(runs[0].stdout) > 100
    assert runs[0].stdout == runs[1].stdout


def test_rules_of_a_real_space_compete():
    """And what is twice as slow as its cost says is proposed less often in the end."""
    state = real()
    costs = {c.choice: c.cost for c in state.space}

    def slow(choice: Choice) -> Outcome:
        return Outcome(OK, costs[choice] * (2 if choice.rule.name == "cpu_pack" else 1) / 3000)

    best = min(slow(c.choice).median_us for c in state.space)
    order = search(Evolutionary(), state, slow, 36)
    assert {choice.rule.name for choice in order} == {"cpu_dot", "cpu_pack"}
    assert state.outcomes[state.best].median_us == best


def test_small_space_is_exhausted():
    state = real()
    del state.space[5:]
    assert len(search(Evolutionary(), state, lambda choice: Outcome(OK, 1.0), 99)) == 5


def test_space_of_one():
    state = real()
    del state.space[1:]
    assert search(Evolutionary(), state, lambda choice: Outcome(OK, 1.0), 99) == [
        state.space[0].choice
    ]


def test_evolution_knows_what_was_measured_best():
    """By an earlier run: the trace in MetaSchedule's database stands for that candidate."""
    state = large()
    for candidate in state.space[100:130]:
        state.outcomes[candidate.choice] = bumpy(candidate.choice)
    strategy = Evolutionary()
    strategy.propose([state], 6)
    evolution = strategy._evolutions[state.workload]
    (record,) = evolution._database.get_top_k(evolution._workload, 1)
    assert list(map(float, record.run_secs)) == [1e-6 * state.outcomes[state.best].median_us]
    schedule = Schedule(evolution._context.mod)
    record.trace.apply_to_schedule(schedule, remove_postproc=False)
    assert evolution._genes.decode(schedule).choice == state.best


def test_goes_on_from_what_earlier_runs_measured():
    """The best is found sooner near others that are good."""
    state = large()
    best = min(state.space, key=lambda c: bumpy(c.choice).median_us).choice
    near = [
        c.choice
        for c in state.space
        if (c.choice.config.order, c.choice.config.depth) == (best.config.order, best.config.depth)
        and abs(c.choice.config.rows - best.config.rows) <= 3
        and c.choice != best
    ]
    for choice in near[:20]:
        state.outcomes[choice] = bumpy(choice)
    search(Evolutionary(), state, bumpy, len(state.outcomes) + 48)
    assert state.outcomes[state.best].median_us <= 1.05 * bumpy(best).median_us


def test_goes_on_after_failures():
    """What the model likes best crashes, and all of the first generation."""

    def fragile(choice: Choice) -> Outcome:
        fails = choice.config.rows > 12 or len(state.outcomes) < 6
        return Outcome(CRASHED, message="ended by SIGSEGV") if fails else bumpy(choice)

    state = large()
    search(Evolutionary(), state, fragile, 48)
    assert state.best is not None
    assert state.best.config.rows <= 12
