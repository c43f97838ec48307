"""``rhs`` transposed into the workspace, block by block in registers, then broadcast tiles.

The rule for ``rhs`` contiguous in K with enough rows to pay for the transposition.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from .. import microkernel
from ..compute import WORKSPACE_ALIGNMENT, Matrix
from ..microkernel import Columns
from ..problem import Problem
from ..targets import Target
from ..vectors import COMPUTE_DTYPES, ELEMENT_BYTES, Index, int64, transpose
from . import cost, widen
from .cpu_broadcast import (
    BroadcastConfig,
    Run,
    emit_rows,
    for_each,
    for_each_column_block,
    tile_space,
    tiles_cost,
)
from .rule import Rule


class CpuPack(Rule[BroadcastConfig]):
    """See the module."""

    name = "cpu_pack"
    config_type = BroadcastConfig

    def refusal(self, problem: Problem, target: Target) -> str | None:
        """Needs fixed extents and ``rhs`` contiguous in K."""
        if problem.is_generic:
            return "extents not fixed"
        if problem.rhs != "k":
            return "rhs not contiguous in k"
        return None

    def space(self, problem: Problem, target: Target) -> Iterator[BroadcastConfig]:
        """Tiles that fit the registers."""
        m, n, _ = problem.extents()
        yield from tile_space(m, n, target, target.lanes(problem.dtype))

    def cost(self, problem: Problem, target: Target, config: BroadcastConfig) -> float:
        """Cycles of the transposition and of all tiles."""
        m, n, k = problem.extents()
        lanes = target.lanes(problem.dtype)
        block = microkernel.k_lanes(min(n, k), lanes)
        blocks = -(-n // block) * -(-k // block)
        return tiles_cost(m, n, k, lanes, config) + blocks * cost.transpose_block(block)

    def workspace_bytes(self, problem: Problem, target: Target, config: BroadcastConfig) -> int:
        """One block of columns, all of K, and ``lhs`` if it is widened."""
        return self._panel_bytes(problem, target, config) + widen.workspace_bytes(
            problem, ("lhs",), target
        )

    @staticmethod
    def _panel_bytes(problem: Problem, target: Target, config: BroadcastConfig) -> int:
        _, n, k = problem.extents()
        columns = microkernel.cover(n, target.lanes(problem.dtype))
        width = min(len(columns), config.tile_vectors) * columns[0].lanes
        size = k * width * ELEMENT_BYTES[COMPUTE_DTYPES[problem.dtype]]
        return -(-size // WORKSPACE_ALIGNMENT) * WORKSPACE_ALIGNMENT

    def emit(self, matrix: Matrix, target: Target, config: BroadcastConfig) -> None:
        """Blocks of columns: transpose each, then all its rows."""
        position = self._panel_bytes(matrix.problem, target, config)
        matrix = widen.operands(matrix, ("lhs",), target, position)
        columns = microkernel.cover(matrix.n, target.lanes(matrix.problem.dtype))

        def block_body(block: Sequence[Columns]) -> None:
            lanes = block[0].lanes
            width = lanes * len(block)

            def load_rhs(matrix: Matrix, k: Index, i: int) -> Any:
                index = matrix.workspace_offset + k * width + i * lanes
                return matrix.workspace.load(index, lanes)

            for i, c in enumerate(block):
                _pack(matrix, c, i * lanes, width)
            emit_rows(matrix, block, load_rhs, target, config)

        for_each_column_block(columns, config.tile_vectors, block_body)


def _pack(matrix: Matrix, columns: Columns, position: int, width: int) -> None:
    """Write ``columns`` of ``rhs``, K by ``columns.lanes``, to the workspace at ``position``.

    Columns of a masked vector that lie outside the matrix repeat the last one inside: their
    results are never stored, and memory outside is never read.
    """
    size = columns.lanes
    inside = size if columns.valid is None else columns.valid

    def pack_block(k: Index, valid: int | None = None) -> None:
        columns_of_k = [
            matrix.rhs.load(matrix.rhs_index(k, columns.start + min(i, inside - 1)), size, valid)
            for i in range(size)
        ]
        for j, row in enumerate(transpose(columns_of_k, size)):
            if valid is None or j < valid:
                matrix.workspace.store((k + j) * width + position, row, size)

    whole, rest = divmod(matrix.k, size)
    for_each(Run(0, size, whole), pack_block)
    if rest and whole:
        pack_block(int64(matrix.k - size))
    elif rest:
        pack_block(int64(0), rest)
