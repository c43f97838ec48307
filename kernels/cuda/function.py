"""From a problem to TensorIR for a GPU: a host function that launches, and the kernel it launches.

The host function has the arguments of a CPU kernel (see ``docs/architecture.md``), with pointers to
memory of the GPU, and launches over a one-dimensional grid. What a block does is the business of a
schedule rule, which is handed a :class:`Block` and emits statements through TVM's IR builder.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tvm import tirx
from tvm.script.ir_builder import IRBuilder
from tvm.tirx.script.builder import ir as T

from ..compute import ADD_MATRIX, ADD_NOTHING, FLAT_ELEMENTS, INTEGERS, POINTERS
from ..problem import Problem
from ..vectors import COMPUTE_DTYPES, Index, int64, storage_dtype
from . import device
from .targets import MAX_GRID, MAX_THREADS


def named(name: str, value: Any) -> Any:
    """``value`` under a name that the generated code shows."""
    return IRBuilder.name(name, value)


def bind(name: str, value: Any) -> Any:
    """A variable of that name with ``value``."""
    return named(name, T.Bind(value))


def int32(value: Index) -> Any:
    """``value`` as an int32 expression."""
    if isinstance(value, int):
        return tirx.IntImm("int32", value)
    return tirx.Cast("int32", value)


def as_int64(value: Index) -> Any:
    """``value``, of any integer type, as an int64 expression."""
    if isinstance(value, int):
        return int64(value)
    return tirx.Cast("int64", value)


def add(first: Any, offset: Any) -> Any:
    """``first + offset``, where ``offset`` is an int32 and ``first`` may be an int64."""
    return first + (as_int64(offset) if str(first.ty) == "int64" else offset)


def registers(name: str, count: int, dtype: str) -> Any:
    """An array of a thread's own; a register each where every index is a constant."""
    return named(name, T.alloc_buffer([int32(count)], dtype, scope="local"))


def shared(name: str, count: int, dtype: str) -> Any:
    """An array that the threads of a block share."""
    return named(name, T.alloc_buffer([int32(count)], dtype, scope="shared"))


def sync() -> None:
    """Wait for all threads of the block."""
    T.evaluate(T.tvm_storage_sync("shared"))


def unrolled(count: int) -> Any:
    """A loop over int32 from 0 to ``count``, unrolled."""
    return T.unroll(int32(0), int32(count))


@dataclass(frozen=True)
class Grid:
    """How a kernel is laid out over blocks and threads.

    Attributes
    ----------
    threads
        Threads of a block.
    tiles
        Blocks that share the work on one matrix.
    matrices
        Matrices that one block computes; more than one only where ``tiles`` is 1.
    """

    threads: int
    tiles: Index
    matrices: int = 1

    def __post_init__(self) -> None:
        if not 1 <= self.threads <= MAX_THREADS:
            raise ValueError(f"threads={self.threads}: expected 1 to {MAX_THREADS}")
        if isinstance(self.tiles, int) and not 1 <= self.tiles <= MAX_GRID:
            raise ValueError(f"tiles={self.tiles}: expected 1 to {MAX_GRID}")
        if self.matrices < 1 or (self.matrices > 1 and self.tiles != 1):
            raise ValueError(f"{self}: several matrices to a block, or several blocks to a matrix")


@dataclass(frozen=True)
class Operand:
    """One matrix of an operand: where it begins and how far apart its rows are."""

    buffer: Any
    dtype: str
    offset: Any
    stride: Any

    def load(self, outer: Index, inner: Index) -> Any:
        """An element, in the compute type."""
        return device.widen(self.buffer[self.index(outer, inner)], self.dtype)

    def index(self, outer: Index, inner: Index) -> Any:
        """Position in :attr:`buffer`."""
        return self.offset + as_int64(outer) * self.stride + as_int64(inner)

    def address(self, outer: Index, inner: Index) -> Any:
        """Pointer to an element."""
        return T.address_of(self.buffer[self.index(outer, inner)])


@dataclass(frozen=True)
class Matrix:
    """One matrix product of the batch.

    Attributes
    ----------
    valid
        Whether it lies in the range of the batch; only asked of blocks of several matrices.
    """

    problem: Problem
    m: Index
    n: Index
    k: Index
    lhs: Operand
    rhs: Operand
    addend: Operand
    out: Operand
    addend_kind: Any
    scale: Any
    valid: Any

    @property
    def dtype(self) -> str:
        """The type that products are summed in."""
        return COMPUTE_DTYPES[self.problem.dtype]

    def lhs_at(self, m: Index, k: Index) -> tuple[Index, Index]:
        """Row and position in the row of ``lhs[m, k]`` in memory."""
        return (m, k) if self.problem.lhs == "k" else (k, m)

    def rhs_at(self, k: Index, n: Index) -> tuple[Index, Index]:
        """Row and position in the row of ``rhs[k, n]`` in memory."""
        return (k, n) if self.problem.rhs == "n" else (n, k)

    def finish_all(
        self,
        extents: tuple[int, int],
        row: Callable[[Any], Any],
        column: Callable[[Any], Any],
        inside: Callable[[Any, Any], Any],
        sums: Any,
        position: Callable[[Any, Any], Any] | None = None,
    ) -> None:
        """Scale a thread's sums, add the addend and store them.

        Parameters
        ----------
        extents
            How many rows and columns a thread has.
        row, column
            ``row(i)`` and ``column(j)`` are where one of them lies.
        inside
            ``inside(i, j)`` is whether it is part of the product; None if it always is.
        sums
            An array of the thread; spoiled.
        position
            ``position(i, j)`` is where in it a sum lies; rows of columns if None.
        """
        rows, columns = extents

        def each(step: Callable[[Any, Any, Any], None]) -> None:
            with unrolled(rows) as i, unrolled(columns) as j:
                at = position(i, j) if position else i * int32(columns) + j
                condition = inside(i, j)
                if condition is None:
                    step(i, j, at)
                else:
                    with T.If(condition), T.Then():
                        step(i, j, at)

        with unrolled(rows * columns) as i:
            T.buffer_store(sums, sums[i] * self.scale, [i])

        def add(i: Any, j: Any, at: Any) -> None:
            # A column has one value to a row: n is held at 0.
            is_matrix = self.addend_kind == int64(ADD_MATRIX)
            n = tirx.Select(is_matrix, as_int64(column(j)), int64(0))
            T.buffer_store(sums, sums[at] + self.addend.load(row(i), n), [at])

        def store(i: Any, j: Any, at: Any) -> None:
            value = device.narrow(sums[at], self.problem.dtype)
            T.buffer_store(self.out.buffer, value, [self.out.index(row(i), column(j))])

        with T.If(self.addend_kind != int64(ADD_NOTHING)), T.Then():
            each(add)
        each(store)


@dataclass(frozen=True)
class Block:
    """One block of threads, as a schedule rule sees it.

    Attributes
    ----------
    problem
        What is computed.
    m, n, k
        Its extents: ints, or int64 expressions for a generic problem.
    thread
        Index of the thread in the block, int32.
    tile
        Index of the block among those of its matrix, int32.
    """

    problem: Problem
    m: Index
    n: Index
    k: Index
    thread: Any
    tile: Any
    _matrix: Callable[[Index], Matrix]

    @property
    def dtype(self) -> str:
        """The type that products are summed in."""
        return COMPUTE_DTYPES[self.problem.dtype]

    def matrix(self, position: Index = 0) -> Matrix:
        """The block's matrix number ``position``."""
        return self._matrix(position)


def kernel_function(
    problem: Problem,
    symbol: str,
    grid: Callable[[Index, Index, Index], Grid],
    body: Callable[[Block], None],
    *,
    max_grid: int = MAX_GRID,
) -> Any:
    """The PrimFunc of a kernel: arguments, launches, and ``body`` for one block.

    Parameters
    ----------
    problem
        What is computed.
    symbol
        Name of the host function; the kernel proper is called ``<symbol>_kernel``.
    grid
        ``grid(m, n, k)`` is the layout; the extents are int64 expressions for a generic problem.
    body
        Emits the statements of one block.
    max_grid
        Blocks of one launch. More are launched one after the other.

    Returns
    -------
    tvm.tirx.PrimFunc
        With the arguments listed in ``docs/architecture.md``.
    """
    with IRBuilder() as builder, T.prim_func():
        T.func_name(symbol)
        pointers = {name: T.arg(name, T.handle(storage_dtype(problem.dtype))) for name in POINTERS}
        arg = {name: T.arg(name, tirx.Var(name, "int64")) for name in INTEGERS}
        scale = T.arg("scale", tirx.Var("scale", "float64"))
        if problem.is_generic:
            arg |= {name: T.arg(name, tirx.Var(name, "int64")) for name in "mnk"}
        T.func_attr({"global_symbol": symbol, "tirx.noalias": True})
        buffers = {
            name: T.decl_buffer([int64(FLAT_ELEMENTS)], storage_dtype(problem.dtype), data=pointer)
            for name, pointer in pointers.items()
        }
        compute_dtype = COMPUTE_DTYPES[problem.dtype]
        if compute_dtype != "float64":
            scale = bind("factor", tirx.Cast(compute_dtype, scale))
        m, n, k = (arg["m"], arg["n"], arg["k"]) if problem.is_generic else problem.extents()
        layout = grid(m, n, k)
        tiles = bind("tiles", as_int64(layout.tiles))
        # Groups of matrices that a block takes, and how many of them fit a launch.
        groups = bind("groups", _ceil_div(arg["end"] - arg["begin"], layout.matrices))
        most = bind("most", T.max(tirx.truncdiv(int64(max_grid), T.max(tiles, int64(1))), int64(1)))
        launches = tirx.truncdiv(groups + most - int64(1), most)
        message = f"{symbol}: a matrix of more than {max_grid} tiles"
        if problem.is_generic:
            with T.Assert(tiles <= int64(max_grid), message):
                pass
        # An empty product has no blocks, and a launch of none would be an error.
        with T.If(tiles > int64(0)), T.Then(), T.serial(int64(0), launches) as launch:
            first = bind("first", arg["begin"] + launch * most * int64(layout.matrices))
            blocks = bind("blocks", T.min(groups - launch * most, most) * tiles)
            with (
                T.launch_thread("blockIdx.x", tirx.Cast("int32", blocks)) as block,
                T.launch_thread("threadIdx.x", int32(layout.threads)) as thread,
            ):
                group, tile = _split(block, layout.tiles)

                def matrix(position: Index) -> Matrix:
                    index = bind(
                        "index",
                        first + as_int64(group) * int64(layout.matrices) + as_int64(position),
                    )
                    batch = bind("batch", tirx.truncdiv(index, arg["heads"]))
                    head = bind("head", index - batch * arg["heads"])

                    def operand(name: str) -> Operand:
                        offset = (
                            batch * arg[f"{name}_batch_stride"] + head * arg[f"{name}_head_stride"]
                        )
                        return Operand(
                            buffers[name],
                            problem.dtype,
                            bind(f"{name}_offset", offset),
                            arg[f"{name}_stride"],
                        )

                    return Matrix(
                        problem=problem,
                        m=m,
                        n=n,
                        k=k,
                        lhs=operand("lhs"),
                        rhs=operand("rhs"),
                        addend=operand("addend"),
                        out=operand("out"),
                        addend_kind=arg["addend_kind"],
                        scale=scale,
                        valid=index < arg["end"],
                    )

                body(Block(problem, m, n, k, thread, tile, matrix))
    return builder.get()


def _ceil_div(value: Any, divisor: int) -> Any:
    return tirx.truncdiv(value + int64(divisor - 1), int64(divisor)) if divisor > 1 else value


def _split(block: Any, tiles: Index) -> tuple[Any, Any]:
    """A block's group of matrices and its tile. Tiles of a matrix are neighbours, and share L2."""
    if isinstance(tiles, int):
        if tiles == 1:
            return block, int32(0)
        group = bind("group", tirx.truncdiv(block, int32(tiles)))
        return group, bind("tile", block - group * int32(tiles))
    # A launch has fewer than 2^31 blocks, so that 32 bits do.
    count = bind("tile_count", int32(tiles))
    group = bind("group", tirx.truncdiv(block, count))
    return group, bind("tile", block - group * count)
