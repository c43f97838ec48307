"""The cost model leads, corrected by what was measured so far of all workloads.

The model of the rules (bytes, multiply-adds, vector tails, latencies: see ``schedules/cost.py``)
knows no particular processor. How far it is off is learned while tuning: the logarithm of measured
over expected time is fitted by a ridge regression on the rule and its knobs, after the mean of each
workload is taken off, since only the order within a workload matters. So what one workload teaches
of a knob helps all others. What that leaves of a workload is fitted once more, for itself alone.

A model that is wrong about part of a space would never see it: half of what is measured first is
not what promises most, but what lies furthest from everything taken before.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from ...schedules import Choice
from ..space import Candidate
from .strategy import State, Strategy

_RIDGE = 1.0
_OWN_RIDGE = 0.3
_LEAST_SIGMA = 0.03
_FIRST = 2
"""Candidates of each rule that are measured before anything is known."""

_OTHER_RULE = 16.0
"""How far apart candidates of different rules are: as by so many doublings of a knob."""


class Guided(Strategy):
    """Proposes what is expected to win, until nothing untried is likely to.

    A candidate is worth measuring while its corrected expectation, less one standard deviation of
    what the correction leaves unexplained, is below the best measured.
    """

    def propose(self, states: Sequence[State], most: int) -> list[list[Choice]]:
        """See :class:`Strategy`."""
        correction = Correction(states)
        return [self._propose(state, correction, most) for state in states]

    @staticmethod
    def _propose(state: State, correction: Correction, most: int) -> list[Choice]:
        if not any(outcome.ok for outcome in state.outcomes.values()):
            return _first(state.untried(), most)
        unseen = _unseen(state)
        best = min(o.median_us for o in state.outcomes.values() if o.ok)
        untried = state.untried()
        expected = correction.expected(state, untried)
        bound = best * math.exp(correction.sigma)
        worth = [(us, index) for index, us in enumerate(expected) if us < bound]
        promising = [untried[index].choice for _, index in sorted(worth)]
        return list(dict.fromkeys((*unseen, *promising)))[:most]


def _first(untried: Sequence[Candidate], most: int) -> list[Choice]:
    """The most promising of each rule, their seconds, and as many far from these and each other."""
    by_rule: dict[str, int] = {}
    turns: list[list[Candidate]] = [[] for _ in range(_FIRST + 1)]
    for candidate in untried:
        name = candidate.choice.rule.name
        turn = by_rule[name] = by_rule.get(name, -1) + 1
        turns[min(turn, _FIRST)].append(candidate)
    in_turn = [candidate for turn in turns for candidate in turn]
    count = most - most // 2
    taken, left = in_turn[:count], in_turn[count:]
    return [c.choice for c in (*taken, *_far(left, taken, most - count))]


def _far(
    candidates: Sequence[Candidate], taken: Sequence[Candidate], count: int
) -> list[Candidate]:
    """``count`` candidates, each the furthest from those taken before it."""
    left = dict.fromkeys(candidates, math.inf)
    found: list[Candidate] = []
    before = list(taken)
    while left and len(found) < count:
        for newest in before:
            left = {c: min(distance, _distance(c, newest)) for c, distance in left.items()}
        furthest = max(left, key=left.__getitem__)
        del left[furthest]
        found.append(furthest)
        before = [furthest]
    return found


def _distance(one: Candidate, other: Candidate) -> float:
    """Between two candidates of a workload: doublings of all knobs."""
    if one.choice.rule.name != other.choice.rule.name:
        return _OTHER_RULE
    knobs = zip(one.choice.config.to_json().values(), other.choice.config.to_json().values())
    return sum(_doublings(a, b) for a, b in knobs)


def _doublings(a: object, b: object) -> float:
    if isinstance(a, int) and isinstance(b, int):
        return abs(math.log2(1 + a) - math.log2(1 + b))
    return float(a != b)


def _unseen(state: State) -> list[Choice]:
    """The most promising candidate of each rule of which none was tried.

    What is known of other rules says little of such a one.
    """
    seen = {choice.rule.name for choice in state.outcomes}
    first: dict[str, Choice] = {}
    for candidate in state.space:
        first.setdefault(candidate.choice.rule.name, candidate.choice)
    return [choice for name, choice in first.items() if name not in seen]


class Correction:
    """Fitted to all that was timed: see the module."""

    def __init__(self, states: Sequence[State]) -> None:
        self._features: dict[str, int] = {}
        rows: list[npt.NDArray[np.float64]] = []
        targets: list[float] = []
        for state in states:
            timed = _timed(state)
            if len(timed) < 2:
                continue
            errors = [_log_error(state, candidate) for candidate in timed]
            vectors = [self._vector(candidate, learn=True) for candidate in timed]
            width = len(self._features)
            block = np.stack([np.pad(v, (0, width - v.size)) for v in vectors])
            rows += list(block - block.mean(axis=0))
            targets += [error - sum(errors) / len(errors) for error in errors]
        width = len(self._features)
        self._weights = np.zeros(width)
        self.sigma = 0.3
        if rows:
            matrix = np.stack([np.pad(row, (0, width - row.size)) for row in rows])
            target = np.array(targets)
            self._weights = _ridge(matrix, target, _RIDGE)
            residual = target - matrix @ self._weights
            self.sigma = max(_LEAST_SIGMA, float(np.sqrt(np.mean(residual**2))))
        self._own = {state.workload: self._fit_own(state) for state in states}

    def expected(self, state: State, candidates: Sequence[Candidate]) -> list[float]:
        """Microseconds expected of candidates of a workload.

        In proportion to them, rather, as long as none was timed.
        """
        weights = self._weights + self._own.get(state.workload, 0.0)

        def correction(candidate: Candidate) -> float:
            return float(self._vector(candidate, learn=False) @ weights)

        offsets = [_log_error(state, c) - correction(c) for c in _timed(state)]
        offset = sum(offsets) / len(offsets) if offsets else 0.0
        return [c.cost * math.exp(offset + correction(c)) for c in candidates]

    def factor(self, candidate: Candidate) -> float:
        """What was learned of a candidate from all workloads: multiplies its expected cost."""
        return math.exp(self._correction(candidate))

    def _fit_own(self, state: State) -> npt.NDArray[np.float64]:
        """Weights for what the others leave of one workload."""
        timed = _timed(state)
        if len(timed) < 2:
            return np.zeros(len(self._features))
        matrix = np.stack([self._vector(c, learn=False) for c in timed])
        left = np.array([_log_error(state, c) - self._correction(c) for c in timed])
        matrix -= matrix.mean(axis=0)
        return _ridge(matrix, left - left.mean(), _OWN_RIDGE)

    def _correction(self, candidate: Candidate) -> float:
        vector = self._vector(candidate, learn=False)
        return float(vector @ self._weights[: vector.size])

    def _vector(self, candidate: Candidate, *, learn: bool) -> npt.NDArray[np.float64]:
        """The rule, and the logarithm of each knob and its square."""
        rule = candidate.choice.rule.name
        values = {rule: 1.0}
        for name, knob in candidate.choice.config.to_json().items():
            if isinstance(knob, int):
                values[f"{rule} {name}"] = math.log2(1 + knob)
                values[f"{rule} {name}²"] = math.log2(1 + knob) ** 2 / 4
            else:
                values[f"{rule} {name}={knob}"] = 1.0
        if learn:
            for name in values:
                self._features.setdefault(name, len(self._features))
        vector = np.zeros(len(self._features))
        for name, value in values.items():
            if name in self._features:
                vector[self._features[name]] = value
        return vector


def _ridge(
    matrix: npt.NDArray[np.float64], target: npt.NDArray[np.float64], ridge: float
) -> npt.NDArray[np.float64]:
    """Weights ``w`` that minimise ``|matrix @ w - target|² + ridge |w|²``."""
    gram = matrix.T @ matrix + ridge * np.eye(matrix.shape[1])
    weights: npt.NDArray[np.float64] = np.linalg.solve(gram, matrix.T @ target)
    return weights


def _timed(state: State) -> list[Candidate]:
    outcomes = state.outcomes
    return [c for c in state.space if c.choice in outcomes and outcomes[c.choice].ok]


def _log_error(state: State, candidate: Candidate) -> float:
    return math.log(state.outcomes[candidate.choice].median_us / candidate.cost)
