"""A tile of a product on tensor cores: ``mma.m16n8k16`` on 16-bit elements, sums in float32.

Operands are staged in shared memory as they lie in memory, in 16 bits, and read as fragments by
``ldmatrix``, which transposes on the way where the contiguous dimension is not K. Beyond the
product there are zeros in both operands, so that nothing leaks from memory there.
"""

from __future__ import annotations

from typing import Any

from tvm import tirx
from tvm.tirx.script.builder import ir as T

from . import device
from .function import Block, Operand, as_int64, bind, int32, registers, shared, unrolled
from .staging import Copier, RawCopier, every, in_vectors, walk
from .targets import WARP
from .tile import corner
from .tile_shape import MMA_K, MMA_M, MMA_N, MmaTile, Stage, across_tiles

_LANES = 8  # 16-bit elements in 16 bytes: a row of a fragment
_SUMS = 4  # of one thread in one instruction


def emit_mma(block: Block, tile: MmaTile) -> None:
    """Compute this block's tile."""
    m, n, k = block.problem.extents()
    matrix = block.matrix()
    first_row, first_column = corner(block, tile.rows, tile.columns)
    chunks = int(across_tiles(k, tile.tile_k))

    def copier(name: str, operand: Operand, stage: Stage, first: Any, span: int) -> RawCopier:
        memory = shared(f"{name}_shared", stage.elements * min(chunks, 2), "uint16")
        extent = k if stage.along_k else span
        return RawCopier(
            operand=operand,
            stage=stage,
            threads=tile.threads,
            tile_k=tile.tile_k,
            memory=memory,
            base=int32(0),
            local=block.thread,
            first=first,
            span=span,
            k=k,
            guard=None,
            vectors=in_vectors(operand, stage, extent, _LANES),
        )

    lhs = copier("lhs", matrix.lhs, tile.lhs_stage(block.problem.lhs), first_row, m)
    rhs = copier("rhs", matrix.rhs, tile.rhs_stage(block.problem.rhs), first_column, n)
    warp = bind("warp", tirx.truncdiv(block.thread, int32(WARP)))
    lane = bind("lane", block.thread - warp * int32(WARP))
    warp_y = tirx.truncdiv(warp, int32(tile.warps_n))
    warp_row = bind("warp_row", warp_y * int32(tile.tile_m * MMA_M))
    warp_column = bind(
        "warp_column", (warp - warp_y * int32(tile.warps_n)) * int32(tile.tile_n * MMA_N)
    )
    sums = registers("sums", tile.tile_m * tile.tile_n * _SUMS, "float32")
    with unrolled(tile.tile_m * tile.tile_n * _SUMS) as i:
        T.buffer_store(sums, tirx.FloatImm("float32", 0.0), [i])

    def multiply(parity: Any) -> None:
        _multiply(
            tile, block.problem.dtype, (lhs, warp_row), (rhs, warp_column), lane, sums, parity
        )

    walk((lhs, rhs), chunks, multiply, copies_async=True)

    # A thread's sums in one instruction: rows g and g + 8, columns 2 t and 2 t + 1.
    group, position = tirx.truncdiv(lane, int32(4)), tirx.truncmod(lane, int32(4))

    def row(i: Any) -> Any:
        fragment, half = tirx.truncdiv(i, int32(2)), tirx.truncmod(i, int32(2))
        return first_row + warp_row + fragment * int32(MMA_M) + half * int32(MMA_M // 2) + group

    def column(j: Any) -> Any:
        fragment, parity = tirx.truncdiv(j, int32(2)), tirx.truncmod(j, int32(2))
        return first_column + warp_column + fragment * int32(MMA_N) + position * int32(2) + parity

    def inside(i: Any, j: Any) -> Any:
        return every(
            [
                as_int64(row(i)) < as_int64(m) if m % tile.rows else None,
                as_int64(column(j)) < as_int64(n) if n % tile.columns else None,
            ]
        )

    def place(i: Any, j: Any) -> Any:
        fragment = tirx.truncdiv(i, int32(2)) * int32(tile.tile_n) + tirx.truncdiv(j, int32(2))
        return (
            fragment * int32(_SUMS)
            + tirx.truncmod(i, int32(2)) * int32(2)
            + tirx.truncmod(j, int32(2))
        )

    matrix.finish_all((2 * tile.tile_m, 2 * tile.tile_n), row, column, inside, sums, place)


def _multiply(
    tile: MmaTile,
    dtype: str,
    lhs: tuple[Copier, Any],
    rhs: tuple[Copier, Any],
    lane: Any,
    sums: Any,
    parity: Any,
) -> None:
    """Add the products of the chunk in buffer ``parity``."""
    left = registers("lhs_fragments", tile.tile_m * 4, "uint32")
    right = registers("rhs_fragments", tile.tile_n * 2, "uint32")
    with T.serial(int32(0), int32(tile.tile_k // MMA_K)) as step:
        k = bind("fragment_k", step * int32(MMA_K))
        with unrolled(tile.tile_m) as i:
            # Blocks of 8 by 8: two along M, then those further along K.
            first = lhs[1] + i * int32(MMA_M)
            _fragments(
                lhs[0], left, i * int32(4), first, k, lane, 4, along_k_first=False, parity=parity
            )
        pairs, single = divmod(tile.tile_n, 2)
        with unrolled(pairs) as j:
            # Two along K, then those of the next instruction.
            first = rhs[1] + j * int32(2 * MMA_N)
            _fragments(
                rhs[0], right, j * int32(4), first, k, lane, 4, along_k_first=True, parity=parity
            )
        if single:
            first = rhs[1] + int32(pairs * 2 * MMA_N)
            _fragments(
                rhs[0],
                right,
                int32(pairs * 4),
                first,
                k,
                lane,
                2,
                along_k_first=True,
                parity=parity,
            )
        with unrolled(tile.tile_m) as i, unrolled(tile.tile_n) as j:
            at = (i * int32(tile.tile_n) + j) * int32(_SUMS)
            device.multiply_add(
                T.address_of(sums[at]),
                T.address_of(left[i * int32(4)]),
                T.address_of(right[j * int32(2)]),
                dtype,
            )


def _fragments(
    copier: Copier,
    target: Any,
    at: Any,
    span: Any,
    k: Any,
    lane: Any,
    count: int,
    *,
    along_k_first: bool,
    parity: Any,
) -> None:
    """``count`` blocks of 8 by 8 from row or column ``span`` and step ``k`` on.

    Lanes 8 b to 8 b + 7 point to the rows of block b, as memory has them.
    """
    stage = copier.stage
    row = tirx.truncmod(lane, int32(8))
    number = tirx.truncmod(tirx.truncdiv(lane, int32(8)), int32(count))
    low = tirx.truncmod(number, int32(2)) * int32(8)
    high = tirx.truncdiv(number, int32(2)) * int32(8)
    span_block, k_block = (high, low) if along_k_first else (low, high)
    if stage.along_k:
        source = stage.position(span + span_block + row, k + k_block)
    else:
        source = stage.position(span + span_block, k + k_block + row)
    device.load_fragments(
        T.address_of(target[at]),
        T.address_of(copier.memory[copier.offset(parity) + source]),
        count,
        transposed=not stage.along_k,
    )
