"""Broadcast tiles with bfloat16 multiplied in pairs (AVX512-BF16).

Each lane needs two neighbours along K of its own column. So ``rhs`` goes to the workspace as pairs,
[K / 2, columns]: rows interleaved where it is contiguous in N, blocks transposed in registers where
it is contiguous in K. A pair of ``lhs`` is broadcast as one 32-bit element.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from tvm import tirx
from tvm.tirx.script.builder import ir as T

from .. import microkernel
from ..compute import WORKSPACE_ALIGNMENT, Matrix
from ..microkernel import BroadcastStep, Columns
from ..problem import Problem
from ..targets import Target
from ..vectors import Accumulator, Index, int64, splat, transpose, vector_type
from . import bf16, cost
from .bf16 import PAIR
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


class CpuPackBf16(Rule[BroadcastConfig]):
    """See the module."""

    name = "cpu_pack_bf16"
    config_type = BroadcastConfig

    def refusal(self, problem: Problem, target: Target) -> str | None:
        """Needs bfloat16, a target that multiplies it, and pairs along K in ``lhs``."""
        reason = bf16.refusal(problem, target)
        if reason is not None:
            return reason
        if problem.is_generic:
            return "extents not fixed"
        if problem.lhs != "k":
            return "lhs not contiguous in k"
        _, n, k = problem.extents()
        if k % PAIR:
            return "k odd"
        if n < target.lanes(problem.dtype):
            return "n less than a vector"
        return None

    def space(self, problem: Problem, target: Target) -> Iterator[BroadcastConfig]:
        """Tiles that fit the registers."""
        m, n, _ = problem.extents()
        yield from tile_space(m, n, target, target.lanes(problem.dtype))

    def cost(self, problem: Problem, target: Target, config: BroadcastConfig) -> float:
        """Cycles of the packing and of all tiles, of half the steps."""
        m, n, k = problem.extents()
        lanes = target.lanes(problem.dtype)
        blocks = -(-n // lanes) * -(-k // (PAIR * lanes))
        packing = blocks * cost.transpose_block(lanes)
        return tiles_cost(m, n, k // PAIR, lanes, config) + packing

    def workspace_bytes(self, problem: Problem, target: Target, config: BroadcastConfig) -> int:
        """One block of columns, all of K."""
        _, n, k = problem.extents()
        lanes = target.lanes(problem.dtype)
        width = min(len(microkernel.cover(n, lanes)), config.tile_vectors) * lanes
        size = k // PAIR * width * 4
        return -(-size // WORKSPACE_ALIGNMENT) * WORKSPACE_ALIGNMENT

    def emit(self, matrix: Matrix, target: Target, config: BroadcastConfig) -> None:
        """Blocks of columns: pack each, then all its rows."""
        lanes = target.lanes(matrix.problem.dtype)

        def load_lhs(matrix: Matrix, row: Index, pair: Index) -> Any:
            raw = matrix.lhs.load_raw(matrix.lhs_index(row, pair * PAIR), PAIR)
            return bf16.pairs(raw, 1)

        def add(total: Accumulator, pair: Any, vector: Any) -> None:
            left = splat(pair, total.lanes)
            total.set(bf16.multiply_pairs(total.get(), left, vector, total.lanes))

        step = BroadcastStep(matrix.k // PAIR, load_lhs, add)

        def block_body(block: Sequence[Columns]) -> None:
            width = lanes * len(block)

            def load_rhs(matrix: Matrix, pair: Index, i: int) -> Any:
                index = matrix.workspace_offset + pair * width + i * lanes
                raw = matrix.workspace.load_raw(index, lanes)
                return bf16.pairs(raw, lanes)

            for i, c in enumerate(block):
                pack = _interleave if matrix.problem.rhs == "n" else _transpose
                pack(matrix, c, i * lanes, width)
            emit_rows(matrix, block, load_rhs, target, config, step)

        with bf16.instruction():
            columns = microkernel.cover(matrix.n, lanes)
            for_each_column_block(columns, config.tile_vectors, block_body)


def _interleave(matrix: Matrix, columns: Columns, position: int, width: int) -> None:
    """Pairs of rows of ``rhs``, contiguous in N."""
    lanes = columns.lanes

    def row(k: Index) -> Any:
        raw = matrix.rhs.load_raw(matrix.rhs_index(k, columns.start), lanes)
        return tirx.Cast(vector_type("uint32", lanes), raw)

    with T.serial(int64(0), int64(matrix.k // PAIR)) as pair:
        shift = splat(tirx.IntImm("uint32", 16), lanes)
        both = row(pair * PAIR) | (row(pair * PAIR + 1) << shift)
        _store_pairs(matrix, pair * width + position, both, lanes)


def _transpose(matrix: Matrix, columns: Columns, position: int, width: int) -> None:
    """Blocks of pairs of ``rhs``, contiguous in K."""
    lanes = columns.lanes
    size = PAIR * lanes

    def pack_block(k: Index, valid: int | None = None) -> None:
        columns_of_k = [
            # As float32, which are shuffled in one instruction.
            T.Bind(
                tirx.reinterpret(
                    vector_type("float32", lanes),
                    matrix.rhs.load_raw(matrix.rhs_index(k, columns.start + i), size, valid),
                )
            )
            for i in range(lanes)
        ]
        for j, row in enumerate(transpose(columns_of_k, lanes)):
            if valid is None or PAIR * j < valid:
                pair = tirx.truncdiv(k, int64(PAIR)) + j
                matrix.workspace.store(pair * width + position, row, lanes)

    whole, rest = divmod(matrix.k, size)
    for_each(Run(0, size, whole), pack_block)
    if rest:
        pack_block(int64(whole * size), rest)


def _store_pairs(matrix: Matrix, index: Any, value: Any, lanes: int) -> None:
    matrix.workspace.store(index, tirx.reinterpret(vector_type("float32", lanes), value), lanes)
