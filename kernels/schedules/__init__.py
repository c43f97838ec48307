"""The schedule rules, in one ordered table per kind of target."""

from __future__ import annotations

from typing import Any

from ..problem import Problem
from ..targets import Target
from .cpu_amx import CpuAmx
from .cpu_broadcast import CpuBroadcast
from .cpu_dot import CpuDot
from .cpu_dot_bf16 import CpuDotBf16
from .cpu_generic import CpuGeneric
from .cpu_pack import CpuPack
from .cpu_pack_bf16 import CpuPackBf16
from .rule import AnyChoice, Choice, Config, Rule

CPU_RULES: tuple[Rule[Any], ...] = (
    CpuAmx(),
    CpuBroadcast(),
    CpuDotBf16(),
    CpuDot(),
    CpuPackBf16(),
    CpuPack(),
    CpuGeneric(),
)
"""Rules for CPUs. Where several apply, the least expected cost decides, then this order."""


def rules(target: Target) -> tuple[Rule[Any], ...]:
    """The table of a target."""
    return CPU_RULES


def choose(problem: Problem, target: Target) -> Choice:
    """The rule and config expected to be fastest.

    Raises
    ------
    ValueError
        If no rule applies; the message has each rule's reason.
    """
    best: tuple[float, Choice] | None = None
    refusals = []
    for rule in rules(target):
        reason = rule.refusal(problem, target)
        if reason is not None:
            refusals.append(f"{rule.name}: {reason}")
            continue
        config = rule.propose(problem, target)
        cost = rule.cost(problem, target, config)
        if best is None or cost < best[0]:
            best = (cost, Choice(rule, config))
    if best is None:
        raise ValueError(f"no schedule rule applies to {problem} ({'; '.join(refusals)})")
    return best[1]


__all__ = ["CPU_RULES", "AnyChoice", "Choice", "Config", "Rule", "choose", "rules"]
