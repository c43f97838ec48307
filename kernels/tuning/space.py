"""All candidates for a problem, the most promising first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..problem import Problem
from ..schedules import AnyChoice, Choice, rules
from ..targets import Target


@dataclass(frozen=True)
class Candidate:
    """A way to compute a problem.

    Attributes
    ----------
    choice
        The rule and its config.
    cost
        What the rule's model expects: cycles for one matrix, or nanoseconds on a GPU. It ranks
        candidates of one problem, and is no prediction of time.
    """

    choice: AnyChoice[Any]
    cost: float


def space(problem: Problem, target: Target) -> list[Candidate]:
    """The legal space of every rule that applies, by expected cost; the rules' order breaks ties.

    Raises
    ------
    ValueError
        If no rule applies; the message has each rule's reason.
    """
    found: list[Candidate] = []
    refusals: list[str] = []
    for rule in rules(target):
        reason = rule.refusal(problem, target)
        if reason is not None:
            refusals.append(f"{rule.name}: {reason}")
            continue
        for config in rule.space(problem, target):
            found.append(Candidate(Choice(rule, config), rule.cost(problem, target, config)))
    if not found:
        raise ValueError(f"no schedule rule applies to {problem} ({'; '.join(refusals)})")
    return sorted(found, key=lambda candidate: candidate.cost)
