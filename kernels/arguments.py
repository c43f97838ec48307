"""The arguments of a kernel, for those who call one without TVM; ``compute.py`` declares them."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any

from .elements import ADD_NOTHING


@dataclass(frozen=True)
class Place:
    """Where the matrices of an operand are.

    Attributes
    ----------
    address
        Of the first element, as the kernel's device has it.
    strides
        In elements: of the batch, of the heads, and of the dimension that is not contiguous.
    """

    address: int
    strides: tuple[int, int, int]


NOWHERE = Place(0, (0, 0, 0))
"""The addend of a product without one."""


def kernel_arguments(
    lhs: Place,
    rhs: Place,
    out: Place,
    *,
    heads: int,
    begin: int = 0,
    end: int,
    addend: Place = NOWHERE,
    addend_kind: int = ADD_NOTHING,
    scale: float = 1.0,
    workspace: int = 0,
    extents: tuple[int, ...] = (),
) -> tuple[Any, ...]:
    """What a kernel is called with, in order.

    Parameters
    ----------
    lhs, rhs, out, addend
        The operands.
    heads
        Matrices of one batch entry.
    begin, end
        The range of matrices, batch and heads as one dimension.
    addend_kind
        ``ADD_NOTHING``, ``ADD_MATRIX`` or ``ADD_COLUMN``.
    scale
        What the product is multiplied by.
    workspace
        Address of scratch memory, 0 for none.
    extents
        M, N and K of a generic kernel, nothing of another.
    """
    return (
        ctypes.c_void_p(lhs.address),
        ctypes.c_void_p(rhs.address),
        ctypes.c_void_p(addend.address or None),
        ctypes.c_void_p(out.address),
        ctypes.c_void_p(workspace or None),
        *(begin, end, heads),
        *lhs.strides,
        *rhs.strides,
        *addend.strides,
        addend_kind,
        *out.strides,
        float(scale),
        *extents,
    )
