"""16-bit operands converted once, to the workspace, where tiles would convert them repeatedly.

A broadcast element costs a conversion for each vector of columns, a row of ``rhs`` one for each
tile of rows. Widened beforehand they cost one conversion a vector.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from tvm.tirx.script.builder import ir as T

from .. import microkernel
from ..compute import WORKSPACE_ALIGNMENT, Matrix
from ..problem import Problem
from ..targets import Target
from ..vectors import COMPUTE_DTYPES, ELEMENT_BYTES, View, int64


def operands(matrix: Matrix, names: Sequence[str], target: Target, position: int = 0) -> Matrix:
    """``matrix`` with the operands of ``names`` in the workspace, from byte ``position`` on.

    Unchanged if its element type is the one it is computed in.
    """
    if not _is_narrow(matrix.problem):
        return matrix
    for name in names:
        matrix = _operand(matrix, name, target, position)
        position += _bytes(matrix.problem, name, target)
    return matrix


def workspace_bytes(problem: Problem, names: Sequence[str], target: Target) -> int:
    """What :func:`operands` needs."""
    if not _is_narrow(problem):
        return 0
    return sum(_bytes(problem, name, target) for name in names)


def _is_narrow(problem: Problem) -> bool:
    return COMPUTE_DTYPES[problem.dtype] != problem.dtype


def _stride(problem: Problem, name: str, target: Target) -> int:
    """Elements from row to row of the widened operand: rows start at vectors."""
    _, inner = problem.stored(name)
    lanes = target.lanes(problem.dtype)
    return -(-inner // lanes) * lanes


def _bytes(problem: Problem, name: str, target: Target) -> int:
    outer, _ = problem.stored(name)
    element = ELEMENT_BYTES[COMPUTE_DTYPES[problem.dtype]]
    size = outer * _stride(problem, name, target) * element
    return -(-size // WORKSPACE_ALIGNMENT) * WORKSPACE_ALIGNMENT


def _operand(matrix: Matrix, name: str, target: Target, position: int) -> Matrix:
    outer, inner = matrix.problem.stored(name)
    source: View = getattr(matrix, name)
    offset = getattr(matrix, f"{name}_offset")
    stride = getattr(matrix, f"{name}_stride")
    start = position // ELEMENT_BYTES[matrix.compute_dtype]
    step = _stride(matrix.problem, name, target)
    with T.serial(int64(0), int64(outer)) as row:
        for c in microkernel.cover(inner, target.lanes(matrix.problem.dtype)):
            value = source.load(offset + row * stride + c.start, c.lanes, c.valid)
            matrix.workspace.store(start + row * step + c.start, value, c.lanes)
    changes: dict[str, Any] = {
        name: matrix.workspace,
        f"{name}_offset": int64(start),
        f"{name}_stride": int64(step),
    }
    return dataclasses.replace(matrix, **changes)
