"""The vector building blocks that schedule rules are made of.

A tile keeps its accumulators in vector registers for the whole of K. Two ways to get there:

- :func:`broadcast_tile`: vectors run along N; each step of K multiplies a vector of ``rhs`` by one
  broadcast element of ``lhs``. The outer-product form of Goto and van de Geijn, "Anatomy of
  High-Performance Matrix Multiplication" (2008), without packing, which small matrices do not pay.
- :func:`dot_tile`: vectors run along K; the lanes of each accumulator are summed at the end, a
  whole vector of results at once. For operands that are both contiguous in K.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tvm import tirx
from tvm.tirx.script.builder import ir as T

from .compute import Index, Matrix, int64


@dataclass(frozen=True)
class Columns:
    """One vector's worth of columns: ``lanes`` of them from ``start``.

    ``valid`` is None when all lanes lie inside the matrix, else how many do: the others are
    neither read nor written.
    """

    start: Index
    lanes: int
    valid: Index | None = None


def cover(extent: int, lanes: int) -> list[Columns]:
    """Vectors that cover ``extent`` elements, odd extents without a scalar tail.

    The last vector overlaps its neighbour when the extent is no multiple of ``lanes``: both
    compute the same values there. Extents below ``lanes`` take a narrower vector with a mask.
    """
    if extent < lanes:
        narrow = min(lanes, max(4, 1 << (extent - 1).bit_length()))
        return [Columns(0, narrow, None if extent == narrow else extent)]
    starts = list(range(0, extent - lanes + 1, lanes))
    if extent % lanes:
        starts.append(extent - lanes)
    return [Columns(start, lanes) for start in starts]


def _ramp(base: Any, lanes: int) -> Any:
    return tirx.Ramp(base, int64(1), lanes) if lanes > 1 else base


def _mask(valid: Index, lanes: int) -> Any:
    lane = tirx.Ramp(int64(0), int64(1), lanes)
    return lane < tirx.Broadcast(int64(valid), lanes)


def load(buffer: Any, index: Any, lanes: int, valid: Index | None = None) -> Any:
    """A vector load; lanes from ``valid`` on are zero, and their memory is not touched."""
    if valid is None:
        return T.Bind(buffer.vload([_ramp(index, lanes)]))
    return T.Bind(
        tirx.call_llvm_intrin(
            f"float32x{lanes}",
            f"llvm.masked.load.v{lanes}f32.p0",
            tirx.address_of(buffer[index]),
            _mask(valid, lanes),
            zeros(lanes),
        )
    )


def store(buffer: Any, index: Any, value: Any, lanes: int, valid: Index | None = None) -> None:
    """A vector store; memory behind lanes from ``valid`` on is not touched."""
    if valid is None:
        T.buffer_store(buffer, value, [_ramp(index, lanes)])
        return
    T.evaluate(
        tirx.call_llvm_intrin(
            "void",
            f"llvm.masked.store.v{lanes}f32.p0",
            value,
            tirx.address_of(buffer[index]),
            _mask(valid, lanes),
        )
    )


def zeros(lanes: int) -> Any:
    """A float32 vector of zeros."""
    zero = tirx.FloatImm("float32", 0.0)
    return tirx.Broadcast(zero, lanes) if lanes > 1 else zero


def fma(a: Any, b: Any, c: Any, lanes: int) -> Any:
    """``a * b + c`` rounded once."""
    suffix = "f32" if lanes == 1 else f"v{lanes}f32"
    dtype = "float32" if lanes == 1 else f"float32x{lanes}"
    return tirx.call_llvm_pure_intrin(dtype, f"llvm.fma.{suffix}", a, b, c)


class Accumulator:
    """A vector register that lives through loops."""

    def __init__(self, lanes: int) -> None:
        self.lanes = lanes
        dtype = "float32" if lanes == 1 else f"float32x{lanes}"
        # One buffer a register: TVM keeps buffers below 1 KiB on the stack, and LLVM promotes
        # those that are indexed by constants to registers.
        self._buffer = T.alloc_buffer([1], dtype)
        self.set(zeros(lanes))

    def get(self) -> Any:
        """The value now."""
        return self._buffer[0]

    def set(self, value: Any) -> None:
        """Replace the value."""
        T.buffer_store(self._buffer, value, [int64(0)])

    def multiply_add(self, a: Any, b: Any) -> None:
        """Add ``a * b``."""
        self.set(fma(a, b, self.get(), self.lanes))


def steps(extent: Index, unroll: int, step: Callable[[Index, int], None]) -> None:
    """Run ``step(index, position)`` for each index below ``extent``, ``unroll`` to an iteration.

    ``position`` is the index modulo ``unroll``, a Python int: it may choose a register.
    """
    if isinstance(extent, int):
        whole, rest = divmod(extent, unroll)
        if whole == 1:
            whole, rest = 0, extent
        if whole:
            with T.serial(int64(0), int64(whole)) as iteration:
                for position in range(unroll):
                    step(iteration * unroll + position, position)
        for position in range(rest):
            step(int64(whole * unroll + position), position % unroll)
    else:
        if unroll != 1:
            raise ValueError("a run-time extent is not unrolled")
        with T.serial(int64(0), extent) as iteration:
            step(iteration, 0)


def broadcast_tile(
    matrix: Matrix,
    first_row: Index,
    rows: int,
    columns: Sequence[Columns],
    load_rhs: Callable[[Index, int], Any],
    *,
    k_split: int = 1,
    unroll: int = 1,
) -> None:
    """Compute ``rows`` x ``columns`` of ``out`` with vectors along N.

    Parameters
    ----------
    matrix
        The product.
    first_row, rows
        The rows computed.
    columns
        The columns computed, a vector each.
    load_rhs
        ``load_rhs(k, i)`` is row ``k`` of ``rhs`` in ``columns[i]``.
    k_split
        Sets of accumulators that steps of K take in turn, so that a tile of few accumulators does
        not wait for the latency of its own sums. ``unroll`` is a multiple of it.
    unroll
        Steps of K in one loop iteration.
    """
    sums = [[[Accumulator(c.lanes) for c in columns] for _ in range(rows)] for _ in range(k_split)]

    def step(k: Index, position: int) -> None:
        vectors = [load_rhs(k, i) for i in range(len(columns))]
        for row in range(rows):
            element = T.Bind(matrix.lhs[matrix.lhs_index(first_row + row, k)])
            for column, vector in enumerate(vectors):
                lanes = columns[column].lanes
                sums[position % k_split][row][column].multiply_add(
                    tirx.Broadcast(element, lanes) if lanes > 1 else element, vector
                )

    steps(matrix.k, unroll, step)
    for row in range(rows):
        for column, c in enumerate(columns):
            value = sums[0][row][column].get()
            for split in range(1, k_split):
                value = value + sums[split][row][column].get()
            index = matrix.out_index(first_row + row, c.start)
            store(matrix.out, index, value, c.lanes, c.valid)


def _shuffle(a: Any, b: Any, lanes: Sequence[int]) -> Any:
    return T.Bind(tirx.Shuffle([a, b], [tirx.IntImm("int32", lane) for lane in lanes]))


def lane(value: Any, index: int) -> Any:
    """One element of a vector."""
    return T.Bind(tirx.Shuffle([value], [tirx.IntImm("int32", index)]))


def _slice(value: Any, start: int, lanes: int) -> Any:
    indices = [tirx.IntImm("int32", start + lane) for lane in range(lanes)]
    return T.Bind(tirx.Shuffle([value], indices))


def _halves(a: Any, b: Any, lanes: int, unit: int) -> Any:
    """Sum of two shuffles of ``a`` and ``b``: pairs of ``unit`` lanes of each folded into one.

    ``unit`` is counted so that each shuffle is one instruction on x86 (vshuff64x2, vinsertf64x4,
    vunpcklpd, vshufps).
    """
    groups = range(0, lanes, 2 * unit)
    if unit >= 4:
        low = [g + u for g in groups for u in range(unit)]
        high = [g + unit + u for g in groups for u in range(unit)]
        first = low + [lanes + lane for lane in low]
        second = high + [lanes + lane for lane in high]
    else:
        # Inside each group of four lanes: those of a, then those of b.
        first, second = [], []
        for quad in range(0, lanes, 4):
            if unit == 2:
                first += [quad, quad + 1, lanes + quad, lanes + quad + 1]
                second += [quad + 2, quad + 3, lanes + quad + 2, lanes + quad + 3]
            else:
                first += [quad, quad + 2, lanes + quad, lanes + quad + 2]
                second += [quad + 1, quad + 3, lanes + quad + 1, lanes + quad + 3]
    return T.Bind(_shuffle(a, b, first) + _shuffle(a, b, second))


def lane_sums(vectors: Sequence[Any], lanes: int) -> Any:
    """The sum of the lanes of each vector, as one vector of ``len(vectors)`` lanes.

    ``len(vectors)`` is a power of two, at most ``lanes``. A tree of shuffles and additions, which
    for 16 vectors of 16 lanes takes 45 instructions, where summing one by one takes 128.
    """
    count = len(vectors)
    while count < lanes:
        half = lanes // 2
        vectors = [T.Bind(_slice(v, 0, half) + _slice(v, half, half)) for v in vectors]
        lanes = half
    if lanes == 1:
        return vectors[0]
    if lanes == 2:
        a, b = vectors
        return T.Bind(_shuffle(a, b, [0, 2]) + _shuffle(a, b, [1, 3]))
    quads = []
    for residue in range(4):
        group = [vectors[4 * quad + residue] for quad in range(lanes // 4)]
        unit = lanes // 2
        while len(group) > 1:
            group = [_halves(group[i], group[i + 1], lanes, unit) for i in range(0, len(group), 2)]
            unit //= 2
        quads.append(group[0])
    return _halves(
        _halves(quads[0], quads[1], lanes, 2), _halves(quads[2], quads[3], lanes, 2), lanes, 1
    )


def dot_tile(
    matrix: Matrix,
    first_row: Index,
    rows: int,
    first_column: Index,
    columns: int,
    lanes: int,
) -> None:
    """Compute ``rows`` x ``columns`` of ``out`` with vectors along K.

    ``rows * columns`` is a power of two, at most ``lanes``. Both operands are contiguous in K.
    """
    width = lanes
    sums = [Accumulator(width) for _ in range(rows * columns)]

    def step(k: Index, valid: Index | None) -> None:
        left = [
            load(matrix.lhs, matrix.lhs_index(first_row + row, k), width, valid)
            for row in range(rows)
        ]
        for column in range(columns):
            right = load(matrix.rhs, matrix.rhs_index(k, first_column + column), width, valid)
            for row in range(rows):
                sums[row * columns + column].multiply_add(left[row], right)

    _k_steps(matrix.k, width, step)
    totals = lane_sums([s.get() for s in sums], width)
    for row in range(rows):
        index = matrix.out_index(first_row + row, first_column)
        value = totals if rows == 1 else _slice(totals, row * columns, columns)
        store(matrix.out, index, value, columns)


def k_lanes(extent: int, lanes: int) -> int:
    """Lanes of the vectors along K: fewer than ``lanes`` when K is shorter than a vector."""
    return min(lanes, max(4, 1 << (extent - 1).bit_length()))


def _k_steps(extent: Index, lanes: int, step: Callable[[Index, Index | None], None]) -> None:
    """``step(k, valid)`` for each vector along K; the last one may be partly valid."""
    if isinstance(extent, int):
        whole, rest = divmod(extent, lanes)
        steps(whole, 2, lambda index, _: step(index * lanes, None))
        if rest:
            step(int64(whole * lanes), rest)
        return
    vectors = T.Bind(tirx.truncdiv(extent, int64(lanes)))
    steps(vectors, 1, lambda index, _: step(index * lanes, None))
    left = T.Bind(extent - vectors * lanes)
    with T.If(left > int64(0)), T.Then():
        step(vectors * lanes, left)


def transpose_block(
    source: Callable[[int], Any], target: Callable[[int, Any], None], lanes: int
) -> None:
    """Transpose a ``lanes`` x ``lanes`` block in registers.

    ``source(i)`` is row ``i`` as a vector; ``target(j, value)`` takes column ``j``. Four (or three)
    rounds of two-input shuffles, each exchanging blocks of twice the size.
    """
    rows = [source(i) for i in range(lanes)]
    unit = 1
    while unit < lanes:
        done: list[Any] = [None] * lanes
        for i in range(lanes):
            if i & unit:
                continue
            j = i | unit
            first: list[int] = []
            second: list[int] = []
            for lane in range(0, lanes, 2 * unit):
                first += range(lane, lane + unit)
                first += range(lanes + lane, lanes + lane + unit)
                second += range(lane + unit, lane + 2 * unit)
                second += range(lanes + lane + unit, lanes + lane + 2 * unit)
            done[i] = _shuffle(rows[i], rows[j], first)
            done[j] = _shuffle(rows[i], rows[j], second)
        rows = done
        unit *= 2
    for j, value in enumerate(rows):
        target(j, value)
