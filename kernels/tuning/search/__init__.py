"""Strategies of the search: which candidates are measured next, one a file."""

from __future__ import annotations

from .brute_force import BruteForce
from .evolutionary import Evolutionary
from .guided import Guided
from .strategy import State, Strategy

STRATEGIES: dict[str, type[Strategy]] = {
    "brute-force": BruteForce,
    "guided": Guided,
    "evolutionary": Evolutionary,
}
"""By the names of the command line."""

__all__ = ["STRATEGIES", "BruteForce", "Evolutionary", "Guided", "State", "Strategy"]
