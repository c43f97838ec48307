"""What candidates compete at: a problem, and how many matrices of it a model computes at once."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ..problem import Problem

HOT, COLD = "hot", "cold"
"""Whether the operands of a measurement are in the processor's caches."""

_MOST_MULTIPLY_ADDS = 1 << 28
"""Of one pass over a workload: more matrices would take longer and tell no more."""


@dataclass(frozen=True)
class Workload:
    """A problem as it is measured.

    Attributes
    ----------
    problem
        What is computed.
    matrices
        How many of them in one pass: batch times heads.
    cache
        ``HOT`` or ``COLD``.

    Raises
    ------
    ValueError
        If a field is out of its range.
    """

    problem: Problem
    matrices: int
    cache: str = HOT

    def __post_init__(self) -> None:
        if not isinstance(self.matrices, int) or self.matrices < 1:
            raise ValueError(f"matrices={self.matrices!r}: expected a positive number")
        if self.cache not in (HOT, COLD):
            raise ValueError(f"cache={self.cache!r}: expected {HOT} or {COLD}")

    def to_json(self) -> dict[str, Any]:
        """As a record has it."""
        return {"problem": self.problem.to_json(), "matrices": self.matrices, "cache": self.cache}

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> Workload:
        """The inverse of :meth:`to_json`."""
        return cls(Problem.from_json(fields["problem"]), fields["matrices"], fields["cache"])


def workloads(rows: Iterable[Any], cache: str = HOT) -> list[Workload]:
    """One workload for each problem of ``rows`` of shape tables, in a fixed order.

    Where several rows share a problem, the median of their numbers of matrices counts.
    """
    counts: dict[Problem, list[int]] = {}
    for row in rows:
        counts.setdefault(row.problem, []).append(math.prod(row.batch))
    found = []
    for problem, numbers in counts.items():
        median = sorted(numbers)[(len(numbers) - 1) // 2]
        most = max(1, _MOST_MULTIPLY_ADDS // math.prod(problem.extents()))
        found.append(Workload(problem, min(median, most), cache))
    return sorted(found, key=lambda w: (w.problem.extents(), str(w.problem)))
