"""Chunks of an operand on their way from memory to shared memory.

Shared memory keeps an operand as it lies in memory, so that neighbouring threads copy neighbouring
elements whatever the layout. What lies outside the product is stored as zeros, and memory there is
not touched.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tvm import tirx
from tvm.tirx.script.builder import ir as T

from ..vectors import COMPUTE_DTYPES, ELEMENT_BYTES, Index, int64
from . import device
from .function import Operand, add, as_int64, bind, int32, registers, sync
from .tile_shape import Stage

VECTOR_BYTES = 16

_UNROLLED_COPIES = 4  # enough loads in flight; more of them only hold addresses in registers


@dataclass(frozen=True)
class Copier:
    """Moves chunks of one operand of one matrix to shared memory.

    Attributes
    ----------
    operand, stage
        What is copied, and how it lies in shared memory.
    threads, tile_k
        Threads that copy, and steps of K in a chunk.
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
    threads: int
    tile_k: int
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
        return -(-self.stage.outer * self.stage.inner // (lanes * self.threads))

    def each(self, lanes: int, step: Callable[[Any, Any, Any], None], *, rolled: bool) -> None:
        """``step(round, outer, inner)`` for each of this thread's pieces.

        ``rolled`` in a loop, whose rounds are no constants; it takes fewer registers.
        """
        threads = self.threads
        across = self.stage.inner // lanes
        total = self.stage.outer * across
        whole, rounds = total // threads, self.rounds(lanes)

        def one(number: Any, *, last: bool) -> None:
            piece = bind("piece", self.local + int32(number) * int32(threads))

            def inside() -> None:
                outer = bind("outer", tirx.truncdiv(piece, int32(across)))
                inner = bind("inner", (piece - outer * int32(across)) * int32(lanes))
                step(number, outer, inner)

            if not last:
                inside()
                return
            with T.If(piece < int32(total)), T.Then():
                inside()

        if rolled and whole > _UNROLLED_COPIES:
            with T.serial(
                int32(0), int32(whole), annotations={"pragma_unroll": _UNROLLED_COPIES}
            ) as number:
                one(number, last=False)
        else:
            for position in range(whole):
                one(position, last=False)
        if rounds > whole:
            one(whole, last=True)

    def inside(self, outer: Any, inner: Any, first_k: Index) -> Any:
        """Whether a piece lies in the product; None if it always does."""
        span, k = (outer, inner) if self.stage.along_k else (inner, outer)
        conditions = [self.guard]
        count = self.stage.outer if self.stage.along_k else self.stage.inner
        if not isinstance(self.span, int) or self.span % count:
            conditions.append(as_int64(add(self.first, span)) < as_int64(self.span))
        if not isinstance(self.k, int) or self.k % self.tile_k:
            conditions.append(first_k + as_int64(k) < as_int64(self.k))
        return every(conditions)

    def place(self, outer: Any, inner: Any, first_k: Any) -> tuple[Any, Any]:
        """Row and position of a piece in memory."""
        if self.stage.along_k:
            return as_int64(add(self.first, outer)), first_k + as_int64(inner)
        return first_k + as_int64(outer), as_int64(add(self.first, inner))

    def target(self, outer: Any, inner: Any, buffer: Any) -> Any:
        """Index of a piece in shared memory."""
        return self.base + buffer + outer * int32(self.stage.stride) + inner

    def offset(self, parity: Any) -> Any:
        """Where buffer ``parity`` begins."""
        return parity * int32(self.stage.elements)

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
            def one(_: Any, outer: Any, inner: Any) -> None:
                inside = self.inside(outer, inner, first_k)
                target = T.address_of(self.memory[self.target(outer, inner, buffer)])
                source = self.operand.address(*self.place(outer, inner, first_k))
                valid = tirx.IntImm("bool", 1) if inside is None else inside
                device.copy_async(target, source, lanes * size, valid)

            self.each(lanes, one, rolled=True)

        self.both(pieces)

    def fetch(self, first_k: Any, held: Any) -> None:
        """Load a chunk into registers."""

        def pieces(lanes: int) -> None:
            def one(number: Any, outer: Any, inner: Any) -> None:
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

            self.each(lanes, one, rolled=False)

        self.both(pieces)

    def put(self, held: Any, buffer: Any) -> None:
        """Store what :meth:`fetch` loaded to shared memory."""

        def pieces(lanes: int) -> None:
            def one(number: Any, outer: Any, inner: Any) -> None:
                target = self.target(outer, inner, buffer)
                for lane in range(lanes):
                    value = held[int32(number * lanes + lane)]
                    T.buffer_store(self.memory, value, [target + int32(lane)])

            self.each(lanes, one, rolled=False)

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


class RawCopier(Copier):
    """Copies 16-bit elements as they are, for instructions that widen them themselves."""

    @property
    def lanes(self) -> int:
        """Elements of a vector copy."""
        return VECTOR_BYTES // ELEMENT_BYTES[self.operand.dtype]

    def copy_async(self, first_k: Any, buffer: Any) -> None:
        """Begin to copy a chunk; single elements are copied at once."""

        def pieces(lanes: int) -> None:
            def one(_: Any, outer: Any, inner: Any) -> None:
                inside = self.inside(outer, inner, first_k)
                place = self.place(outer, inner, first_k)
                at = self.target(outer, inner, buffer)
                if lanes > 1:
                    target = T.address_of(self.memory[at])
                    valid = tirx.IntImm("bool", 1) if inside is None else inside
                    device.copy_async(target, self.operand.address(*place), VECTOR_BYTES, valid)
                    return
                value = self.operand.buffer[self.operand.index(*place)]
                if inside is not None:
                    value = tirx.if_then_else(inside, value, tirx.IntImm("uint16", 0))
                T.buffer_store(self.memory, value, [at])

            self.each(lanes, one, rolled=True)

        self.both(pieces)


def in_vectors(operand: Operand, stage: Stage, extent: Index, lanes: int) -> Any:
    """Whether ``lanes`` elements may be copied at once: at run time, or None for never.

    ``extent`` is that of the contiguous dimension.
    """
    if stage.inner % lanes or (isinstance(extent, int) and extent % lanes):
        return None
    size = ELEMENT_BYTES[operand.dtype]
    address = T.address_of(operand.buffer[operand.offset])
    aligned = device.is_aligned(address, operand.stride, lanes, size)
    if not isinstance(extent, int):
        whole = tirx.EQ(tirx.truncmod(extent, int64(lanes)), int64(0))
        aligned = tirx.And(aligned, whole)
    return bind("in_vectors", aligned)


def walk(
    copiers: Sequence[Copier],
    chunks: Index,
    multiply: Callable[[Any], None],
    *,
    copies_async: bool,
) -> None:
    """All chunks of K: the next one is copied while one is multiplied.

    ``multiply(parity)`` adds the products of the chunk in buffer ``parity``, 0 or 1.
    """
    if copies_async:
        _walk_async(copiers, chunks, multiply)
    else:
        _walk_through_registers(copiers, chunks, multiply)


def _walk_async(copiers: Sequence[Copier], chunks: Index, multiply: Callable[[Any], None]) -> None:
    for copier in copiers:
        copier.copy_async(int64(0), int32(0))
    device.commit()
    if isinstance(chunks, int) and chunks == 1:
        device.wait(0)
        sync()
        multiply(int32(0))
        return
    with T.serial(int64(0), int64(chunks)) as chunk:
        parity = bind("parity", int32(tirx.truncmod(chunk, int64(2))))
        device.wait(0)
        # The chunk is there for all; and all are done with the buffer that the next one goes to.
        sync()
        with T.If(chunk + int64(1) < int64(chunks)), T.Then():
            first_k = bind("next_k", (chunk + int64(1)) * int64(copiers[0].tile_k))
            for copier in copiers:
                copier.copy_async(first_k, copier.offset(int32(1) - parity))
            device.commit()
        multiply(parity)


def _walk_through_registers(
    copiers: Sequence[Copier], chunks: Index, multiply: Callable[[Any], None]
) -> None:
    held = [copier.held("held") for copier in copiers]
    for copier, values in zip(copiers, held):
        copier.fetch(int64(0), values)
        copier.put(values, int32(0))
    sync()
    if isinstance(chunks, int) and chunks == 1:
        multiply(int32(0))
        return
    with T.serial(int64(0), int64(chunks)) as chunk:
        parity = bind("parity", int32(tirx.truncmod(chunk, int64(2))))
        more = bind("more", chunk + int64(1) < int64(chunks))
        with T.If(more), T.Then():
            first_k = bind("next_k", (chunk + int64(1)) * int64(copiers[0].tile_k))
            for copier, values in zip(copiers, held):
                copier.fetch(first_k, values)
        multiply(parity)
        with T.If(more), T.Then():
            for copier, values in zip(copiers, held):
                copier.put(values, copier.offset(int32(1) - parity))
        sync()
