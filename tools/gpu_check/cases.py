"""What is timed: products of the shape tables, each with what follows it in a model."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tf_tvm_ops.kernels.problem import Problem

if TYPE_CHECKING:
    from tf_tvm_ops.kernels.shapes import ShapeRow  # which needs what does not travel

FILE_NAME = "cases.json"

MASK, TRANSPOSE = "mask", "transpose"
"""What follows a product: a scale and an addend that all rows and heads of a batch entry share, or
its result written length-first, [batch, M, heads, N]."""

HEADLINE = (64, 8, 1, 17, 128)
"""Batch, heads, M, N and K of the product that batched small products were first optimised for."""

TRANSLATION = "translation"
"""Name of the table whose geometric mean is an acceptance mark."""


@dataclass(frozen=True)
class Case:
    """One product to time.

    Attributes
    ----------
    table, site
        Where it comes from.
    batch, heads
        Numbers of matrices.
    problem
        What is computed, as the operands are stored.
    epilogue
        ``MASK`` or ``TRANSPOSE``.
    """

    table: str
    site: str
    batch: int
    heads: int
    problem: Problem
    epilogue: str

    @property
    def is_headline(self) -> bool:
        """Whether it is the product of the first acceptance mark."""
        same = (self.batch, self.heads, *self.problem.extents()) == HEADLINE
        return same and self.problem.dtype == "float32" and self.epilogue == TRANSPOSE

    def to_json(self) -> dict[str, Any]:
        """As in a bundle and in results."""
        return {**asdict(self), "problem": self.problem.to_json()}

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> Case:
        """The inverse of :meth:`to_json`."""
        return cls(**{**fields, "problem": Problem.from_json(fields["problem"])})

    def __str__(self) -> str:
        m, n, k = self.problem.extents()
        lhs = f"{k}x{m}ᵀ" if self.problem.lhs == "m" else f"{m}x{k}"
        rhs = f"{n}x{k}ᵀ" if self.problem.rhs == "k" else f"{k}x{n}"
        return f"[{self.batch},{self.heads}] {lhs} · {rhs} {self.problem.dtype} {self.epilogue}"


def epilogue_of(row: ShapeRow) -> str:
    """What follows such a product in a Transformer.

    Scores are queries times keys, stored as [length, depth], and are scaled and masked; what is
    computed of them is transposed. The headline has a transpose, as it was published.
    """
    headline = (*row.batch, row.m, row.n, row.k) == HEADLINE
    return MASK if row.rhs == "k" and not headline else TRANSPOSE


def spread(cases: Iterable[Case]) -> list[Case]:
    """The order to time them in, so that a part of them stands for all.

    The headline first, then one of each site in turns, the translation table's before others. Of
    each site, those in the middle of what is left come first.
    """
    sites: dict[tuple[bool, str, str], list[Case]] = {}
    for case in cases:
        key = (case.table != TRANSLATION, case.table, case.site)
        sites.setdefault(key, []).append(case)
    ranked = [
        (not case.is_headline, rank, key, case)
        for key, members in sites.items()
        for rank, case in enumerate(_halving(members))
    ]
    return [entry[-1] for entry in sorted(ranked, key=lambda entry: entry[:3])]


def _halving(members: list[Case]) -> list[Case]:
    """The middle one, then the middles of both halves, and so on."""
    order, ranges = [], [(0, len(members))]
    while ranges:
        begin, end = ranges.pop(0)
        if begin < end:
            middle = (begin + end) // 2
            order.append(members[middle])
            ranges += [(begin, middle), (middle + 1, end)]
    return order


def write(folder: Path, cases: Iterable[Case]) -> None:
    """Put cases into a bundle."""
    lines = ",\n".join(json.dumps(case.to_json()) for case in cases)
    (folder / FILE_NAME).write_text(f"[\n{lines}\n]\n", encoding="utf-8")


def read(folder: Path) -> list[Case]:
    """The cases of a bundle."""
    text = (folder / FILE_NAME).read_text(encoding="utf-8")
    return [Case.from_json(fields) for fields in json.loads(text)]
