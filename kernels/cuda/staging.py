"""Chunks of an operand on their way from memory to shared memory.

Shared memory keeps an operand as it lies in memory, so that neighbouring threads copy neighbouring
elements whatever the layout. What lies outside the product is stored as zeros, and memory there is
not touched.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tvm import tirx
from tvm.tirx.script.builder import ir as T

from ..vectors import COMPUTE_DTYPES, ELEMENT_BYTES, Index, int64
from . import device
from .function import Operand, as_int64, bind, int32, registers
from .tile_shape import Stage, Tile

VECTOR_BYTES = 16


@dataclass(frozen=True)
class Copier:
    """Moves chunks of one operand of one matrix to shared memory.

    Attributes
    ----------
    operand, stage, tile
        What is copied, how it lies in shared memory, and who copies.
    memory, base
        The array in shared memory, and where this matrix's part of it begins.
    local
        Index of the thread among those of the matrix.
    first, span
        First row of lhs, or column of rhs, of the tile; their number in the product.
    k
        Extent of K.
    guard
        None, or whether there is a matrix at all.
    vectors
        None, or whether 16 bytes may be copied at once.
    """

    operand: Operand
    stage: Stage
    tile: Tile
    memory: Any
    base: Any
    local: Any
    first: Any
    span: Index
    k: Index
    guard: Any
    vectors: Any

    @property
    def dtype(self) -> str:
        """The type of elements in shared memory."""
        return COMPUTE_DTYPES[self.operand.dtype]

    @property
    def lanes(self) -> int:
        """Elements of a vector copy."""
        return VECTOR_BYTES // ELEMENT_BYTES[self.dtype]

    def rounds(self, lanes: int) -> int:
        """Copies of one thread."""
        return -(-self.stage.outer * self.stage.inner // (lanes * self.tile.threads_per_matrix))

    def each(self, lanes: int, step: Callable[[int, Any, Any], None]) -> None:
        """``step(round, outer, inner)`` for each of this thread's pieces."""
        threads = self.tile.threads_per_matrix
        across = self.stage.inner // lanes
        total = self.stage.outer * across
        for number in range(self.rounds(lanes)):
            index = bind("piece", self.local + int32(number * threads))

            def one(number: int = number, index: Any = index) -> None:
                outer = bind("outer", tirx.truncdiv(index, int32(across)))
                inner = bind("inner", (index - outer * int32(across)) * int32(lanes))
                step(number, outer, inner)

            if (number + 1) * threads > total:
                with T.If(index < int32(total)), T.Then():
                    one()
            else:
                one()

    def inside(self, outer: Any, inner: Any, first_k: Index) -> Any:
        """Whether a piece lies in the product; None if it always does."""
        span, k = (outer, inner) if self.stage.along_k else (inner, outer)
        conditions = [self.guard]
        count = self.stage.outer if self.stage.along_k else self.stage.inner
        if not isinstance(self.span, int) or self.span % count:
            conditions.append(as_int64(self.first + span) < as_int64(self.span))
        if not isinstance(self.k, int) or self.k % self.tile.tile_k:
            conditions.append(first_k + as_int64(k) < as_int64(self.k))
        return every(conditions)

    def place(self, outer: Any, inner: Any, first_k: Any) -> tuple[Any, Any]:
        """Row and position of a piece in memory."""
        if self.stage.along_k:
            return as_int64(self.first + outer), first_k + as_int64(inner)
        return first_k + as_int64(outer), as_int64(self.first + inner)

    def target(self, outer: Any, inner: Any, buffer: Any) -> Any:
        """Index of a piece in shared memory."""
        return self.base + buffer + outer * int32(self.stage.stride) + inner

    def both(self, step: Callable[[int], None]) -> None:
        """``step(lanes)`` for vectors where they may be, for elements elsewhere."""
        if self.vectors is None:
            step(1)
            return
        with T.If(self.vectors):
            with T.Then():
                step(self.lanes)
            with T.Else():
                step(1)

    def copy_async(self, first_k: Any, buffer: Any) -> None:
        """Begin to copy a chunk."""
        size = ELEMENT_BYTES[self.dtype]

        def pieces(lanes: int) -> None:
            def one(_: int, outer: Any, inner: Any) -> None:
                inside = self.inside(outer, inner, first_k)
                target = T.address_of(self.memory[self.target(outer, inner, buffer)])
                source = self.operand.address(*self.place(outer, inner, first_k))
                valid = tirx.IntImm("bool", 1) if inside is None else inside
                device.copy_async(target, source, lanes * size, valid)

            self.each(lanes, one)

        self.both(pieces)

    def fetch(self, first_k: Any, held: Any) -> None:
        """Load a chunk into registers."""

        def pieces(lanes: int) -> None:
            def one(number: int, outer: Any, inner: Any) -> None:
                inside = self.inside(outer, inner, first_k)
                place = self.place(outer, inner, first_k)

                def load() -> None:
                    if lanes == 1:
                        T.buffer_store(held, self.operand.load(*place), [int32(number)])
                        return
                    target = T.address_of(held[int32(number * lanes)])
                    device.read(target, self.operand.address(*place), lanes, self.operand.dtype)

                if inside is None:
                    load()
                    return
                with T.If(inside):
                    with T.Then():
                        load()
                    with T.Else():
                        for lane in range(lanes):
                            zero = tirx.FloatImm(self.dtype, 0.0)
                            T.buffer_store(held, zero, [int32(number * lanes + lane)])

            self.each(lanes, one)

        self.both(pieces)

    def put(self, held: Any, buffer: Any) -> None:
        """Store what :meth:`fetch` loaded to shared memory."""

        def pieces(lanes: int) -> None:
            def one(number: int, outer: Any, inner: Any) -> None:
                target = self.target(outer, inner, buffer)
                for lane in range(lanes):
                    value = held[int32(number * lanes + lane)]
                    T.buffer_store(self.memory, value, [target + int32(lane)])

            self.each(lanes, one)

        self.both(pieces)

    def held(self, name: str) -> Any:
        """Registers for one chunk."""
        count = self.rounds(1)
        if self.vectors is not None:
            count = max(count, self.rounds(self.lanes) * self.lanes)
        return registers(name, count, self.dtype)


def every(conditions: list[Any]) -> Any:
    """Whether all conditions hold, of which None always does; None if all are."""
    given = [c for c in conditions if c is not None]
    if not given:
        return None
    whole = given[0]
    for condition in given[1:]:
        whole = tirx.And(whole, condition)
    return whole


def in_vectors(operand: Operand, stage: Stage, tile: Tile, extent: Index) -> Any:
    """Whether the operand can be copied in vectors: at run time, or None for never."""
    lanes = VECTOR_BYTES // ELEMENT_BYTES[COMPUTE_DTYPES[operand.dtype]]
    if tile.vector_width != lanes or stage.inner % lanes:
        return None
    if isinstance(extent, int) and extent % lanes:
        return None
    size = ELEMENT_BYTES[operand.dtype]
    address = T.address_of(operand.buffer[operand.offset])
    aligned = device.is_aligned(address, operand.stride, lanes, size)
    if not isinstance(extent, int):
        whole = tirx.EQ(tirx.truncmod(extent, int64(lanes)), int64(0))
        aligned = tirx.And(aligned, whole)
    return bind("vectors", aligned)
