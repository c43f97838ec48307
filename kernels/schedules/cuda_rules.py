"""The schedule rules for GPUs, in one ordered table."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..cuda.targets import CudaTarget
from ..problem import Problem
from .cuda_generic import CudaGeneric
from .cuda_mma import CudaMma
from .cuda_rule import CudaChoice, CudaRule
from .cuda_small import CudaSmall
from .cuda_thread import CudaThread
from .cuda_tile import CudaTile
from .cuda_vector import CudaVector

CUDA_RULES: tuple[CudaRule[Any], ...] = (
    CudaVector(),
    CudaMma(),
    CudaSmall(),
    CudaTile(),
    CudaThread(),
    CudaGeneric(),
)
"""Where several apply, the least expected cost decides, then this order."""


def candidates(problem: Problem, target: CudaTarget) -> Iterator[CudaChoice]:
    """Rules with their configs, the one expected to be fastest first.

    Raises
    ------
    ValueError
        If no rule applies; the message has each rule's reason.
    """
    found: list[tuple[float, int, CudaChoice]] = []
    refusals = []
    for rule in CUDA_RULES:
        reason = rule.refusal(problem, target)
        if reason is not None:
            refusals.append(f"{rule.name}: {reason}")
            continue
        for config in rule.space(problem, target):
            cost = rule.cost(problem, target, config)
            found.append((cost, len(found), CudaChoice(rule, config)))
    if not found:
        raise ValueError(f"no schedule rule applies to {problem} ({'; '.join(refusals)})")
    for _, _, choice in sorted(found, key=lambda entry: entry[:2]):
        yield choice
