"""What the strategies of the search propose, for times made up: tuning/search/."""

from __future__ import annotations

import pytest

from tf_tvm_ops.kernels.problem import Problem
from tf_tvm_ops.kernels.schedules import Choice
from tf_tvm_ops.kernels.targets import TARGETS
from tf_tvm_ops.kernels.tuning.measurer import Outcome
from tf_tvm_ops.kernels.tuning.record import CRASHED, NOT_BUILT, OK, WRONG
from tf_tvm_ops.kernels.tuning.search import BruteForce, Guided, State
from tf_tvm_ops.kernels.tuning.space import Candidate, space
from tf_tvm_ops.kernels.tuning.workload import Workload

TARGET = TARGETS["cpu:x86-64-v4"]
PROBLEMS = [Problem(17, 40, 64, rhs="k"), Problem(12, 17, 33, rhs="k"), Problem(6, 64, 64)]


def states(*problems: Problem) -> list[State]:
    return [State(Workload(p, 8), space(p, TARGET)) for p in problems or PROBLEMS]


def names(choices) -> set[str]:
    return {choice.rule.name for choice in choices}


def search(strategy, found: list[State], time_of, most: int = 6, waves: int = 10_000) -> int:
    """Propose and 'measure' until nothing is proposed; the number of waves."""
    for wave in range(waves):
        proposed = strategy.propose(found, most)
        assert len(proposed) == len(found)
        if not any(proposed):
            return wave
        for state, choices in zip(found, proposed):
            assert len(choices) <= most
            assert len(set(choices)) == len(choices)
            assert not set(choices) & set(state.outcomes)
            costs = {c.choice: c.cost for c in state.space}
            for choice in choices:
                state.outcomes[choice] = time_of(choice, costs[choice])
    return waves


def honest(choice: Choice, cost: float) -> Outcome:
    return Outcome(OK, cost / 3000)


def test_space_holds_all_rules_by_expected_cost():
    for state in states():
        costs = [candidate.cost for candidate in state.space]
        assert costs == sorted(costs)
        assert len({c.choice for c in state.space}) == len(costs)


def test_brute_force_exhausts_the_space_in_order():
    found = states()
    search(BruteForce(), found, honest)
    for state in found:
        assert list(state.outcomes) == [c.choice for c in state.space]


@pytest.mark.parametrize("status", [WRONG, CRASHED, NOT_BUILT])
def test_brute_force_goes_on_after_failures(status):
    found = states()
    search(BruteForce(), found, lambda choice, cost: Outcome(status, message="no"))
    for state in found:
        assert len(state.outcomes) == len(state.space)
        assert state.best is None


@pytest.mark.parametrize("most", [1, 2, 6])
def test_guided_tries_every_rule_and_less_than_the_space(most):
    found = states()
    search(Guided(), found, honest, most)
    for state in found:
        assert names(state.outcomes) == names(c.choice for c in state.space)
        assert len(state.outcomes) < len(state.space) / 2
        assert state.best == state.space[0].choice


def test_guided_learns_that_a_rule_is_slower_than_it_expects():
    """A rule that takes three times what its cost says is left alone, also where it looks best."""

    def slow(choice: Choice, cost: float) -> Outcome:
        factor = 3 if choice.rule.name == "cpu_pack" else 1
        return Outcome(OK, factor * cost / 3000)

    (taught, other) = states(*PROBLEMS[:2])
    assert taught.space[0].choice.rule.name == "cpu_pack"
    search(Guided(), [taught], slow, waves=1)
    first = set(taught.outcomes)
    assert names(first) == {"cpu_dot", "cpu_pack"}
    search(Guided(), [taught], slow)
    assert names(set(taught.outcomes) - first) <= {"cpu_dot"}
    # One look at another workload is enough to know where it stands.
    for name in ("cpu_dot", "cpu_pack"):
        candidate = next(c for c in other.space if c.choice.rule.name == name)
        other.outcomes[candidate.choice] = slow(candidate.choice, candidate.cost)
    _, proposed = Guided().propose([taught, other], 6)
    assert "cpu_pack" not in names(proposed)


def test_guided_finds_what_the_cost_model_does_not_know():
    """Here high tiles take longer than the model says; that is seen with part of the space."""

    def time_of(choice: Choice, cost: float) -> Outcome:
        return Outcome(OK, cost * (1 + choice.config.to_json()["tile_m"] / 8))

    (state,) = states(Problem(17, 40, 64))
    best = min(time_of(c.choice, c.cost).median_us for c in state.space)
    search(Guided(), [state], time_of)
    assert state.outcomes[state.best].median_us <= 1.02 * best
    assert len(state.outcomes) < len(state.space) / 2


def test_guided_sees_a_part_of_the_space_that_the_model_is_wrong_about():
    """All that promises most is as expected; what is far faster than that is none of it."""

    def time_of(choice: Choice, cost: float) -> Outcome:
        return Outcome(OK, cost * (0.4 if choice.config.to_json()["tile_m"] == 1 else 1.0))

    (state,) = states(Problem(7, 128, 7))
    times = {c.choice: time_of(c.choice, c.cost).median_us for c in state.space}
    best = min(times, key=times.__getitem__)
    assert [c.choice for c in state.space].index(best) > len(state.space) / 5
    search(Guided(), [state], time_of)
    assert state.outcomes[state.best].median_us <= 1.01 * times[best]
    assert len(state.outcomes) < len(state.space) / 2


def test_guided_learns_of_a_workload_what_others_contradict():
    """High tiles are slow for one and fast for the other: nothing that both could teach."""
    slow, fast = states(Problem(17, 40, 64), Problem(18, 40, 64))

    def time_of(sign: int):
        return lambda choice, cost: Outcome(
            OK, cost * choice.config.to_json()["tile_m"] ** (sign * 0.5)
        )

    for _ in range(4):
        for state, sign, proposed in zip(
            (slow, fast), (1, -1), Guided().propose([slow, fast], 6), strict=True
        ):
            costs = {c.choice: c.cost for c in state.space}
            state.outcomes |= {c: time_of(sign)(c, costs[c]) for c in proposed}
    for state, sign in ((slow, 1), (fast, -1)):
        best = min(time_of(sign)(c.choice, c.cost).median_us for c in state.space)
        assert state.outcomes[state.best].median_us <= 1.02 * best


def test_guided_goes_on_while_all_fail():
    (state,) = states(PROBLEMS[0])
    search(Guided(), [state], lambda choice, cost: Outcome(WRONG, message="no"))
    assert len(state.outcomes) == len(state.space)


def test_state_ranks_what_was_timed():
    (state,) = states(PROBLEMS[0])
    a, b, c, *_ = (candidate.choice for candidate in state.space)
    state.outcomes = {a: Outcome(OK, 2.0), b: Outcome(CRASHED), c: Outcome(OK, 1.0)}
    assert state.ranked() == [c, a]
    assert state.best == c
    assert [type(x) for x in state.untried()] == [Candidate] * (len(state.space) - 3)
