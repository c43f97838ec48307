"""Strategies of the search: which candidates are measured next, one a file."""

from __future__ import annotations

from .brute_force import BruteForce
from .guided import Guided
from .strategy import State, Strategy

STRATEGIES: dict[str, type[Strategy]] = {
    "brute-force": BruteForce,
    "guided": Guided,
}
"""By the names of the command line."""

__all__ = ["STRATEGIES", "BruteForce", "Guided", "State", "Strategy"]
