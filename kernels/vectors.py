"""Vectors in registers and views of memory, in TensorIR.

Element types of memory and of arithmetic differ for 16-bit floats: a :class:`View` converts on the
way in and out. Conversions are exact inwards and round to nearest, ties to even, outwards.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tvm import tirx
from tvm.tirx.script.builder import ir as T

from .elements import COMPUTE_DTYPES as COMPUTE_DTYPES
from .elements import ELEMENT_BYTES as ELEMENT_BYTES

Index = Any
"""An int64 index: a Python int or a TensorIR expression."""


def int64(value: Index) -> Any:
    """``value`` as an int64 expression."""
    return tirx.IntImm("int64", value) if isinstance(value, int) else value


def vector_type(dtype: str, lanes: int) -> str:
    """TVM's name of a vector of ``lanes`` elements, of the element itself for one lane."""
    return dtype if lanes == 1 else f"{dtype}x{lanes}"


def _llvm_suffix(dtype: str, lanes: int) -> str:
    element = {"float32": "f32", "float64": "f64", "uint16": "i16"}[dtype]
    return element if lanes == 1 else f"v{lanes}{element}"


def _ramp(base: Any, lanes: int) -> Any:
    return tirx.Ramp(base, int64(1), lanes) if lanes > 1 else base


def _mask(valid: Index, lanes: int) -> Any:
    lane = tirx.Ramp(int64(0), int64(1), lanes)
    return lane < tirx.Broadcast(int64(valid), lanes)


def splat(value: Any, lanes: int) -> Any:
    """A vector of equal elements."""
    return tirx.Broadcast(value, lanes) if lanes > 1 else value


def zeros(dtype: str, lanes: int) -> Any:
    """A vector of zeros."""
    zero = tirx.IntImm(dtype, 0) if dtype.startswith("uint") else tirx.FloatImm(dtype, 0.0)
    return splat(zero, lanes)


def fma(a: Any, b: Any, c: Any, dtype: str, lanes: int) -> Any:
    """``a * b + c`` rounded once."""
    suffix = _llvm_suffix(dtype, lanes)
    return tirx.call_llvm_pure_intrin(vector_type(dtype, lanes), f"llvm.fma.{suffix}", a, b, c)


@dataclass(frozen=True)
class View:
    """Flat memory of elements of one type, read and written as vectors of its compute type.

    Attributes
    ----------
    buffer
        A TVM buffer of :func:`storage_dtype`.
    dtype
        The element type.
    """

    buffer: Any
    dtype: str

    @property
    def compute_dtype(self) -> str:
        """The type of loaded vectors."""
        return COMPUTE_DTYPES[self.dtype]

    def load(self, index: Any, lanes: int, valid: Index | None = None) -> Any:
        """A vector; lanes from ``valid`` on are zero, and their memory is not touched."""
        return T.Bind(_widen(self.load_raw(index, lanes, valid), self.dtype, lanes))

    def load_raw(self, index: Any, lanes: int, valid: Index | None = None) -> Any:
        """As :meth:`load`, but of the type in memory."""
        storage = storage_dtype(self.dtype)
        if valid is None or lanes == 1:
            return self.buffer.vload([_ramp(index, lanes)])
        return tirx.call_llvm_intrin(
            vector_type(storage, lanes),
            f"llvm.masked.load.{_llvm_suffix(storage, lanes)}.p0",
            tirx.address_of(self.buffer[index]),
            _mask(valid, lanes),
            zeros(storage, lanes),
        )

    def prefetch(self, index: Any) -> None:
        """Ask for the cache line of an element; any address will do."""
        read, keep, data = (tirx.IntImm("int32", value) for value in (0, 3, 1))
        place = tirx.address_of(self.buffer[index])
        T.evaluate(tirx.call_llvm_intrin("void", "llvm.prefetch.p0", place, read, keep, data))

    def store(self, index: Any, value: Any, lanes: int, valid: Index | None = None) -> None:
        """Write a vector; memory behind lanes from ``valid`` on is not touched."""
        raw = _narrow(value, self.dtype, lanes)
        if valid is None or lanes == 1:
            T.buffer_store(self.buffer, raw, [_ramp(index, lanes)])
            return
        suffix = _llvm_suffix(storage_dtype(self.dtype), lanes)
        T.evaluate(
            tirx.call_llvm_intrin(
                "void",
                f"llvm.masked.store.{suffix}.p0",
                raw,
                tirx.address_of(self.buffer[index]),
                _mask(valid, lanes),
            )
        )


def storage_dtype(dtype: str) -> str:
    """The type of a buffer of ``dtype``: 16-bit floats are moved as integers."""
    return "uint16" if ELEMENT_BYTES[dtype] == 2 else dtype


def _widen(raw: Any, dtype: str, lanes: int) -> Any:
    """From the type in memory to the compute type."""
    if dtype == "float16":
        half = tirx.reinterpret(vector_type("float16", lanes), raw)
        return tirx.Cast(vector_type("float32", lanes), half)
    if dtype == "bfloat16":
        bits = tirx.Cast(vector_type("uint32", lanes), raw)
        shift = splat(tirx.IntImm("uint32", 16), lanes)
        return tirx.reinterpret(vector_type("float32", lanes), bits << shift)
    return raw


def _narrow(value: Any, dtype: str, lanes: int) -> Any:
    """From the compute type to the type in memory."""
    if dtype == "float16":
        half = tirx.Cast(vector_type("float16", lanes), value)
        return tirx.reinterpret(vector_type("uint16", lanes), half)
    if dtype == "bfloat16":
        return _round_to_bfloat16(value, lanes)
    return value


def _round_to_bfloat16(value: Any, lanes: int) -> Any:
    """Round to nearest even by adding just less than half a unit in the last place, then cut.

    A NaN is made the quiet one: the addition could carry it over into an infinity.
    """

    def constant(number: int) -> Any:
        return splat(tirx.IntImm("uint32", number), lanes)

    value = T.Bind(value)
    bits = T.Bind(tirx.reinterpret(vector_type("uint32", lanes), value))
    even = (bits >> constant(16)) & constant(1)
    rounded = (bits + constant(0x7FFF) + even) >> constant(16)
    chosen = tirx.Select(tirx.EQ(value, value), rounded, constant(0x7FC0))
    return tirx.Cast(vector_type("uint16", lanes), chosen)


class Accumulator:
    """A vector register that lives through loops, zero at first."""

    def __init__(self, dtype: str, lanes: int) -> None:
        self.dtype = dtype
        self.lanes = lanes
        # One buffer a register: TVM keeps buffers below 1 KiB on the stack, and LLVM promotes
        # those that are indexed by constants to registers.
        self._buffer = T.alloc_buffer([1], vector_type(dtype, lanes))
        self.set(zeros(dtype, lanes))

    def get(self) -> Any:
        """The value now."""
        return self._buffer[0]

    def set(self, value: Any) -> None:
        """Replace the value."""
        T.buffer_store(self._buffer, value, [int64(0)])

    def multiply_add(self, a: Any, b: Any) -> None:
        """Add ``a * b``."""
        self.set(fma(a, b, self.get(), self.dtype, self.lanes))


def shuffle(a: Any, b: Any, lanes: Sequence[int]) -> Any:
    """The elements at ``lanes`` of ``a`` followed by ``b``."""
    return T.Bind(tirx.Shuffle([a, b], [tirx.IntImm("int32", lane) for lane in lanes]))


def part(value: Any, start: int, lanes: int) -> Any:
    """Neighbouring elements of a vector."""
    indices = [tirx.IntImm("int32", start + lane) for lane in range(lanes)]
    return T.Bind(tirx.Shuffle([value], indices))


def lane_sums(vectors: Sequence[Any], lanes: int) -> Any:
    """The sum of the lanes of each vector, as one vector of ``len(vectors)`` lanes.

    ``len(vectors)`` is a power of two, at most ``lanes``. A tree of shuffles and additions, which
    for 16 vectors of 16 lanes takes 45 instructions, where summing one by one takes 128.
    """
    count = len(vectors)
    while count < lanes:
        half = lanes // 2
        vectors = [T.Bind(part(v, 0, half) + part(v, half, half)) for v in vectors]
        lanes = half
    if lanes == 1:
        return vectors[0]
    if lanes == 2:
        a, b = vectors
        return T.Bind(shuffle(a, b, [0, 2]) + shuffle(a, b, [1, 3]))
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


def _halves(a: Any, b: Any, lanes: int, unit: int) -> Any:
    """Sum of two shuffles of ``a`` and ``b``: pairs of ``unit`` lanes of each folded into one.

    Lanes are chosen so that each shuffle of float32 is one instruction on x86 (vshuff64x2,
    vinsertf64x4, vunpcklpd, vshufps).
    """
    if unit >= 4:
        groups = range(0, lanes, 2 * unit)
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
    return T.Bind(shuffle(a, b, first) + shuffle(a, b, second))


def transpose(rows: Sequence[Any], lanes: int) -> list[Any]:
    """The columns of a ``lanes`` x ``lanes`` block of ``rows``, in registers.

    As many rounds of two-input shuffles as ``lanes`` has bits, each exchanging blocks of twice the
    size.
    """
    rows = list(rows)
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
            done[i] = shuffle(rows[i], rows[j], first)
            done[j] = shuffle(rows[i], rows[j], second)
        rows = done
        unit *= 2
    return rows
