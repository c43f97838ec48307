"""One product to compute: what, never how. The Python twin of ``cc/dispatch/problem.h``."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

DTYPES = ("float32", "float16", "bfloat16", "float64")
LHS_CONTIGUOUS = ("k", "m")
RHS_CONTIGUOUS = ("n", "k")

MAX_EXTENT = 1 << 24
"""Larger M, N or K are refused: no kernel is worth fixing to them."""


@dataclass(frozen=True, order=True)
class Problem:
    """``out[m, n] = sum over k of lhs[m, k] * rhs[k, n]``, in every matrix of a batch.

    Attributes
    ----------
    m, n, k
        Extents of the product, or all None for the generic kernel, which takes them at run time.
    lhs
        The contiguous dimension of the left operand: ``"k"``, or ``"m"`` (``adj_x``).
    rhs
        The contiguous dimension of the right operand: ``"n"``, or ``"k"`` (``adj_y``).
    dtype
        Of operands and result. 16-bit types are summed in float32.

    Scale and addend are no part of a problem: every kernel takes them at run time.

    Raises
    ------
    ValueError
        If a field is out of its range.
    """

    m: int | None
    n: int | None
    k: int | None
    lhs: str = "k"
    rhs: str = "n"
    dtype: str = "float32"

    def __post_init__(self) -> None:
        extents = (self.m, self.n, self.k)
        if any(e is None for e in extents) and any(e is not None for e in extents):
            raise ValueError(f"m, n and k are all given or all None, got {extents}")
        for name, extent in zip("mnk", extents):
            if extent is not None and not 1 <= extent <= MAX_EXTENT:
                raise ValueError(f"{name}={extent}: expected 1 to {MAX_EXTENT}")
        for name, value, allowed in (
            ("lhs", self.lhs, LHS_CONTIGUOUS),
            ("rhs", self.rhs, RHS_CONTIGUOUS),
            ("dtype", self.dtype, DTYPES),
        ):
            if value not in allowed:
                raise ValueError(f"{name}={value!r}: expected one of {', '.join(allowed)}")

    @property
    def is_generic(self) -> bool:
        """Whether m, n and k are left to run time."""
        return self.m is None

    @property
    def multiply_adds(self) -> int:
        """Of one matrix; 0 if they are left to run time."""
        return 0 if self.is_generic else math.prod(self.extents())

    def extents(self) -> tuple[int, int, int]:
        """``(m, n, k)`` of a problem with fixed extents.

        Raises
        ------
        ValueError
            If the problem is generic.
        """
        if self.m is None or self.n is None or self.k is None:
            raise ValueError(f"{self}: has no fixed extents")
        return self.m, self.n, self.k

    def stored(self, name: str) -> tuple[int, int]:
        """Number of rows of ``"lhs"`` or ``"rhs"`` as it lies in memory, and elements of one.

        Raises
        ------
        ValueError
            If the problem is generic.
        """
        m, n, k = self.extents()
        if name == "lhs":
            return (m, k) if self.lhs == "k" else (k, m)
        return (k, n) if self.rhs == "n" else (n, k)

    def canonical(self) -> Problem:
        """The equivalent problem under which the dispatcher looks a product up.

        A dimension of extent 1 has no meaningful stride, so several layouts are one: see
        ``Plan::Make`` in ``cc/dispatch/product.cc``, which chooses alike.
        """
        if self.is_generic:
            return self
        m, n, k = self.extents()
        lhs = "k" if k == 1 or m == 1 else self.lhs
        rhs = "k" if n == 1 else "n" if k == 1 else self.rhs
        return Problem(m, n, k, lhs, rhs, self.dtype)

    def to_json(self) -> dict[str, Any]:
        """The problem as a manifest has it."""
        return {
            "dtype": self.dtype,
            "m": self.m,
            "n": self.n,
            "k": self.k,
            "lhs": self.lhs,
            "rhs": self.rhs,
        }

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> Problem:
        """The inverse of :meth:`to_json`."""
        return cls(**{name: fields[name] for name in cls.__dataclass_fields__})

    def stem(self) -> str:
        """The part of a symbol name that stands for the problem."""
        dtype = {"float32": "f32", "float16": "f16", "bfloat16": "bf16", "float64": "f64"}
        size = "generic" if self.is_generic else f"m{self.m}_n{self.n}_k{self.k}"
        return f"bmm_{dtype[self.dtype]}_{size}_l{self.lhs}_r{self.rhs}"

    def __str__(self) -> str:
        size = "generic" if self.is_generic else f"{self.m}x{self.n}x{self.k}"
        return f"{self.dtype} {size} lhs:{self.lhs} rhs:{self.rhs}"
