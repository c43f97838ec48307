"""Every candidate, in the order of what the cost model expects."""

from __future__ import annotations

from collections.abc import Sequence

from ...schedules import Choice
from .strategy import State, Strategy


class BruteForce(Strategy):
    """Ends when each space is exhausted, whatever was measured."""

    def propose(self, states: Sequence[State], most: int) -> list[list[Choice]]:
        """See :class:`Strategy`."""
        return [[c.choice for c in state.untried()[:most]] for state in states]
