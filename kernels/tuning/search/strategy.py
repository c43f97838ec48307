"""What a strategy of the search is, and what it knows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field

from ...schedules import Choice
from ..measurer import Outcome
from ..space import Candidate
from ..workload import Workload


@dataclass
class State:
    """How far the search for one workload has come.

    Attributes
    ----------
    workload
        What is computed.
    space
        All candidates, the most promising first.
    outcomes
        Those measured, and what came of it.
    """

    workload: Workload
    space: list[Candidate]
    outcomes: dict[Choice, Outcome] = field(default_factory=dict)

    def ranked(self) -> list[Choice]:
        """The candidates that were timed, the fastest first."""
        timed = [choice for choice, outcome in self.outcomes.items() if outcome.ok]
        return sorted(timed, key=lambda choice: self.outcomes[choice].median_us)

    @property
    def best(self) -> Choice | None:
        """The fastest so far."""
        return next(iter(self.ranked()), None)

    def untried(self) -> list[Candidate]:
        """Candidates not measured yet, the most promising first."""
        return [c for c in self.space if c.choice not in self.outcomes]


class Strategy(ABC):
    """Which candidates to measure next."""

    @abstractmethod
    def propose(self, states: Sequence[State], most: int) -> list[list[Choice]]:
        """At most ``most`` candidates for each workload, none where nothing is left worth trying.

        Parameters
        ----------
        states
            What is known of all workloads of one target.
        most
            Candidates for each of them.
        """
