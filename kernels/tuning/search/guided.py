"""The cost model leads, corrected by what was measured so far of all workloads.

The model of the rules (bytes, multiply-adds, vector tails, latencies: see ``schedules/cost.py``)
knows no particular processor. How far it is off is learned while tuning: the logarithm of measured
over expected time is fitted by a ridge regression on the rule and its knobs, after the mean of each
workload is taken off, since only the order within a workload matters. So what one workload teaches
of a knob helps all others.
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
_LEAST_SIGMA = 0.03
_FIRST = 2
"""Candidates of each rule that are measured before anything is known."""


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
    """The most promising of each rule, their seconds, then the most promising of all."""
    by_rule: dict[str, int] = {}
    turns: list[list[Choice]] = [[] for _ in range(_FIRST + 1)]
    for candidate in untried:
        name = candidate.choice.rule.name
        turn = by_rule[name] = by_rule.get(name, -1) + 1
        turns[min(turn, _FIRST)].append(candidate.choice)
    return [choice for turn in turns for choice in turn][:most]


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
            timed = [c for c in state.space if c.choice in state.outcomes]
            timed = [c for c in timed if state.outcomes[c.choice].ok]
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
            gram = matrix.T @ matrix + _RIDGE * np.eye(width)
            self._weights = np.linalg.solve(gram, matrix.T @ target)
            residual = target - matrix @ self._weights
            self.sigma = max(_LEAST_SIGMA, float(np.sqrt(np.mean(residual**2))))

    def expected(self, state: State, candidates: Sequence[Candidate]) -> list[float]:
        """Microseconds expected of candidates of a workload.

        In proportion to them, rather, as long as none was timed.
        """
        timed = [c for c in state.space if c.choice in state.outcomes]
        offsets = [
            _log_error(state, c) - self._correction(c) for c in timed if state.outcomes[c.choice].ok
        ]
        offset = sum(offsets) / len(offsets) if offsets else 0.0
        return [c.cost * math.exp(offset + self._correction(c)) for c in candidates]

    def factor(self, candidate: Candidate) -> float:
        """What the expected cost of a candidate is multiplied by, to compare it with others."""
        return math.exp(self._correction(candidate))

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


def _log_error(state: State, candidate: Candidate) -> float:
    return math.log(state.outcomes[candidate.choice].median_us / candidate.cost)
