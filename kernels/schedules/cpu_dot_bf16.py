"""The dot tile with bfloat16 multiplied in pairs (AVX512-BF16), for operands contiguous in K.

Twice the elements of a float32 multiply-add in one instruction, and nothing to convert.
"""

from __future__ import annotations

from typing import Any

from .. import microkernel
from ..compute import Matrix
from ..problem import Problem
from ..targets import Target
from ..vectors import Accumulator, Index, View
from . import bf16
from .bf16 import PAIR
from .cpu_dot import CpuDot, DotConfig


class CpuDotBf16(CpuDot):
    """See the module."""

    name = "cpu_dot_bf16"

    def refusal(self, problem: Problem, target: Target) -> str | None:
        """Needs bfloat16, a target that multiplies it, and what the dot rule needs."""
        return bf16.refusal(problem, target) or super().refusal(problem, target)

    def cost(self, problem: Problem, target: Target, config: DotConfig) -> float:
        """Cycles of all tiles, each with half the steps."""
        m, n, k = problem.extents()
        halved = Problem(m, n, -(-k // PAIR), problem.lhs, problem.rhs, problem.dtype)
        return super().cost(halved, target, config)

    def emit(self, matrix: Matrix, target: Target, config: DotConfig) -> None:
        """Emit what the dot rule does, with the instruction at hand."""
        with bf16.instruction():
            super().emit(matrix, target, config)

    def tile(
        self,
        matrix: Matrix,
        first_row: Index,
        rows: int,
        first_column: Index,
        columns: int,
        lanes: int,
    ) -> None:
        """The tile of :func:`~tf_tvm_ops.kernels.microkernel.dot_tile`, in pairs."""
        sums = [Accumulator(matrix.compute_dtype, lanes) for _ in range(rows * columns)]
        width = lanes * PAIR

        def load(view: View, index: Any, valid: Index | None) -> Any:
            return bf16.pairs(view.load_raw(index, width, valid), lanes)

        def step(k: Index, valid: Index | None) -> None:
            left = [
                load(matrix.lhs, matrix.lhs_index(first_row + row, k), valid) for row in range(rows)
            ]
            for column in range(columns):
                right = load(matrix.rhs, matrix.rhs_index(k, first_column + column), valid)
                for row in range(rows):
                    total = sums[row * columns + column]
                    total.set(bf16.multiply_pairs(total.get(), left[row], right, lanes))

        microkernel.k_steps(matrix.k, width, step)
        microkernel.finish_dot(matrix, first_row, rows, first_column, columns, sums)

    def _vectors(self, problem: Problem, lanes: int) -> int:
        return super()._vectors(problem, lanes * PAIR)

    def _widened(self, problem: Problem, config: DotConfig) -> tuple[str, ...]:
        return ()
