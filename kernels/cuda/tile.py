"""A tile of a product: operands staged in shared memory, sums in registers.

Threads stand in a grid of ``threads_m`` x ``threads_n``, each with ``tile_m`` x ``tile_n`` sums.
K is walked in chunks of ``tile_k``; while one is multiplied, the next one is on its way. Zeros
stand for what lies outside the product, so that memory there (NaN, say) cannot leak: beyond K zeros
meet zeros, and rows and columns outside are not written.
"""

from __future__ import annotations

from typing import Any

from tvm import tirx
from tvm.tirx.script.builder import ir as T

from ..elements import ELEMENT_BYTES
from ..vectors import Index, int64
from . import device
from .function import (
    Block,
    Matrix,
    Operand,
    add,
    as_int64,
    bind,
    int32,
    registers,
    shared,
    unrolled,
)
from .staging import VECTOR_BYTES, Copier, every, in_vectors, walk
from .tile_shape import Stage, Tile, across_tiles

_UNROLLED_SUMS = 128  # multiply-adds in one iteration along K: enough to hide its reads


def emit_tile(block: Block, tile: Tile) -> None:
    """Compute this block's tile, or its ``tile.matrices`` products."""
    m, n, k = block.m, block.n, block.k
    local, part = block.thread, int32(0)
    if tile.matrices > 1:
        part = bind("part", tirx.truncdiv(block.thread, int32(tile.threads_per_matrix)))
        local = bind("local", block.thread - part * int32(tile.threads_per_matrix))
    y = bind("y", tirx.truncdiv(local, int32(tile.threads_n)))
    x = bind("x", local - y * int32(tile.threads_n))
    matrix = block.matrix(part)
    first_row, first_column = corner(block, tile.rows, tile.columns)
    chunks: Any = (
        -(-k // tile.tile_k) if isinstance(k, int) else bind("chunks", across_tiles(k, tile.tile_k))
    )
    buffers = 1 if chunks == 1 and isinstance(k, int) else 2

    def copier(name: str, operand: Operand, stage: Stage, first: Any, span: Index) -> Copier:
        memory = shared(f"{name}_shared", stage.elements * tile.matrices * buffers, block.dtype)
        base = part * int32(stage.elements * buffers)
        guard = matrix.valid if tile.matrices > 1 else None
        lanes = VECTOR_BYTES // ELEMENT_BYTES[block.dtype]
        vectors = None
        if tile.vector_width == lanes:
            vectors = in_vectors(operand, stage, k if stage.along_k else span, lanes)
        return Copier(
            operand=operand,
            stage=stage,
            threads=tile.threads_per_matrix,
            tile_k=tile.tile_k,
            memory=memory,
            base=base,
            local=local,
            first=first,
            span=span,
            k=k,
            guard=guard,
            vectors=vectors,
        )

    lhs_stage = tile.lhs_stage(block.problem.lhs)
    rhs_stage = tile.rhs_stage(block.problem.rhs)
    lhs = copier("lhs", matrix.lhs, lhs_stage, first_row, m)
    rhs = copier("rhs", matrix.rhs, rhs_stage, first_column, n)
    sums = registers("sums", tile.tile_m * tile.tile_n, block.dtype)
    with unrolled(tile.tile_m * tile.tile_n) as i:
        T.buffer_store(sums, tirx.FloatImm(block.dtype, 0.0), [i])

    def multiply(parity: Any) -> None:
        _multiply(tile, lhs, rhs, y, x, sums, parity)

    walk((lhs, rhs), chunks, multiply, copies_async=tile.copies_async)
    _finish(tile, matrix, lhs, rhs, y, x, sums)


def corner(block: Block, rows: int, columns: int) -> tuple[Any, Any]:
    """First row and column of this block's tile: int64 where extents are not known."""
    if not isinstance(block.n, int):
        across = bind("across", int32(across_tiles(block.n, columns)))
        down = bind("down", tirx.truncdiv(block.tile, across))
        right = block.tile - down * across
        first_row = bind("first_row", as_int64(down) * int64(rows))
        return first_row, bind("first_column", as_int64(right) * int64(columns))
    if block.n <= columns:
        return bind("first_row", block.tile * int32(rows)), int32(0)
    across = int32(int(across_tiles(block.n, columns)))
    down = bind("down", tirx.truncdiv(block.tile, across))
    right = block.tile - down * across
    return bind("first_row", down * int32(rows)), bind("first_column", right * int32(columns))


def _span(stage: Stage, index: Any, threads: int, i: Any) -> Any:
    """Row (of lhs) or column (of rhs), within the tile, of a thread's number ``i``."""
    if stage.group == 1:
        return index + i * int32(threads)
    group = int32(stage.group)
    outer, inner = tirx.truncdiv(i, group), tirx.truncmod(i, group)
    return (outer * int32(threads) + index) * group + inner


def _multiply(tile: Tile, lhs: Copier, rhs: Copier, y: Any, x: Any, sums: Any, parity: Any) -> None:
    """Add the products of the chunk in buffer ``parity``."""
    deep = tile.vector_width if lhs.stage.along_k or rhs.stage.along_k else 1
    sides = (
        (
            lhs,
            y,
            tile.threads_m,
            tile.tile_m,
            registers("lhs_values", tile.tile_m * deep, lhs.dtype),
        ),
        (
            rhs,
            x,
            tile.threads_n,
            tile.tile_n,
            registers("rhs_values", tile.tile_n * deep, rhs.dtype),
        ),
    )
    steps = tile.tile_k // deep
    most = _UNROLLED_SUMS // (tile.tile_m * tile.tile_n * deep)
    unroll = max(u for u in range(1, max(1, most) + 1) if steps % u == 0)
    with T.serial(int32(0), int32(steps), annotations={"pragma_unroll": unroll}) as step:
        for copier, index, threads, count, values in sides:
            base = bind("base", copier.base + copier.offset(parity))
            _read(copier, base, index, threads, count, step * int32(deep), deep, values)
        (_, _, _, _, left), (_, _, _, _, right) = sides
        with unrolled(deep) as u, unrolled(tile.tile_m) as i, unrolled(tile.tile_n) as j:
            at = i * int32(tile.tile_n) + j
            a = left[_value(lhs.stage, i, u, tile.tile_m, deep)]
            b = right[_value(rhs.stage, j, u, tile.tile_n, deep)]
            T.buffer_store(sums, sums[at] + a * b, [at])


def _value(stage: Stage, i: Any, u: Any, count: int, deep: int) -> Any:
    """Where a thread keeps row or column ``i`` at step ``u``; what is read at once adjoins."""
    return i * int32(deep) + u if stage.along_k else u * int32(count) + i


def _read(
    copier: Copier,
    base: Any,
    index: Any,
    threads: int,
    count: int,
    k: Any,
    deep: int,
    values: Any,
) -> None:
    """A thread's ``count`` rows or columns at ``deep`` steps of K, from shared memory."""
    stage = copier.stage
    lanes = deep if stage.along_k else stage.group
    with (
        unrolled(1 if stage.along_k else deep) as u,
        unrolled(count if stage.along_k else count // lanes) as g,
    ):
        i = g if stage.along_k else g * int32(lanes)
        source = base + stage.position(_span(stage, index, threads, i), k + u)
        target = _value(stage, i, u, count, deep)
        if lanes == 1:
            T.buffer_store(values, copier.memory[source], [target])
        else:
            pointers = T.address_of(values[target]), T.address_of(copier.memory[source])
            device.read(*pointers, lanes, copier.dtype)


def _finish(
    tile: Tile, matrix: Matrix, lhs: Copier, rhs: Copier, y: Any, x: Any, sums: Any
) -> None:
    def row(i: Any) -> Any:
        return add(lhs.first, _span(lhs.stage, y, tile.threads_m, i))

    def column(j: Any) -> Any:
        return add(rhs.first, _span(rhs.stage, x, tile.threads_n, j))

    def inside(i: Any, j: Any) -> Any:
        conditions = [lhs.guard]
        if not isinstance(matrix.m, int) or matrix.m % tile.rows:
            conditions.append(as_int64(row(i)) < as_int64(matrix.m))
        if not isinstance(matrix.n, int) or matrix.n % tile.columns:
            conditions.append(as_int64(column(j)) < as_int64(matrix.n))
        return every(conditions)

    matrix.finish_all((tile.tile_m, tile.tile_n), row, column, inside, sums)
