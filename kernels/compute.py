"""From a problem to TensorIR: the signature of a kernel and its loop over the batch.

What happens inside one matrix is the business of a schedule rule, which is handed a
:class:`Matrix` and emits statements through TVM's IR builder.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

from tvm import tirx
from tvm.script.ir_builder import IRBuilder
from tvm.tirx.script.builder import ir as T

from . import ahead
from .ahead import Ahead, Rows
from .elements import ADD_COLUMN as ADD_COLUMN
from .elements import ADD_MATRIX as ADD_MATRIX
from .elements import ADD_NOTHING as ADD_NOTHING
from .elements import WORKSPACE_ALIGNMENT as WORKSPACE_ALIGNMENT
from .problem import Problem
from .vectors import COMPUTE_DTYPES, ELEMENT_BYTES, Index, View, int64, storage_dtype

KERNEL_ABI = 2
"""Version of the argument list; the twin of ``kKernelAbi`` in ``cc/dispatch/kernel.h``."""

FLAT_ELEMENTS = 1 << 48
"""Extent of the flat views of the operands: any index fits."""

POINTERS = ("lhs", "rhs", "addend", "out", "workspace")
"""The first arguments of every kernel, in order."""

INTEGERS = (
    "begin",
    "end",
    "heads",
    "lhs_batch_stride",
    "lhs_head_stride",
    "lhs_stride",
    "rhs_batch_stride",
    "rhs_head_stride",
    "rhs_stride",
    "addend_batch_stride",
    "addend_head_stride",
    "addend_stride",
    "addend_kind",
    "out_batch_stride",
    "out_head_stride",
    "out_stride",
)
"""Those after them, int64; then comes the scale, and for generic kernels m, n and k."""


@dataclass(frozen=True)
class Matrix:
    """One matrix product of the batch, as a schedule rule sees it.

    Attributes
    ----------
    problem
        What is computed.
    m, n, k
        Its extents: ints, or expressions for a generic problem.
    lhs, rhs, addend, out
        Flat views of the operands; index them with :meth:`lhs_index` and its siblings.
    addend_kind
        One of ``ADD_NOTHING``, ``ADD_MATRIX``, ``ADD_COLUMN``, at run time.
    scale
        What the product is multiplied by, of the compute type.
    workspace
        Scratch memory of the calling thread, of the compute type, aligned to
        ``WORKSPACE_ALIGNMENT`` bytes.
    nothing
        0, which the compiler does not know: see :meth:`reread`.
    ahead
        Operands to prefetch while this matrix is computed, if that may pay.
    workspace_offset
        Position of what takes the place of ``rhs`` in the workspace: see :meth:`reread`.
    """

    problem: Problem
    m: Index
    n: Index
    k: Index
    lhs: View
    rhs: View
    addend: View
    addend_kind: Any
    out: View
    scale: Any
    workspace: View
    lhs_offset: Any
    lhs_stride: Any
    rhs_offset: Any
    rhs_stride: Any
    addend_offset: Any
    addend_stride: Any
    out_offset: Any
    out_stride: Any
    nothing: Any
    ahead: Ahead | None
    workspace_offset: Index = 0

    @property
    def compute_dtype(self) -> str:
        """The type that products are summed in."""
        return COMPUTE_DTYPES[self.problem.dtype]

    def reread(self, *, lhs: Index | None = None, rhs: Index | None = None) -> Matrix:
        """The same, with operands that seem to lie elsewhere for each value that is given.

        A compiler that sees tiles load what others have loaded keeps it all, in memory where
        registers do not suffice, and one load becomes a load, a store and many loads.

        Parameters
        ----------
        lhs, rhs
            What differs from tile to tile: its first column, where tiles read the same of ``lhs``,
            and its first row, where they read the same of ``rhs``. None where a tile may use what
            another has read.
        """
        changes: dict[str, Any] = {}
        if lhs is not None:
            changes["lhs_offset"] = self.lhs_offset + self._seeming(lhs)
        if rhs is not None:
            changes["rhs_offset"] = self.rhs_offset + self._seeming(rhs)
            changes["workspace_offset"] = self.workspace_offset + self._seeming(rhs)
        return replace(self, **changes)

    def _seeming(self, value: Index) -> Any:
        # One more: the first tile, too, may read what was just packed, as if from elsewhere.
        return T.Bind(tirx.bitwise_and(int64(value) + 1, self.nothing))

    def lhs_index(self, m: Index, k: Index) -> Any:
        """Position of ``lhs[m, k]`` in :attr:`lhs`."""
        outer, inner = (m, k) if self.problem.lhs == "k" else (k, m)
        return self.lhs_offset + outer * self.lhs_stride + inner

    def rhs_index(self, k: Index, n: Index) -> Any:
        """Position of ``rhs[k, n]`` in :attr:`rhs`."""
        outer, inner = (k, n) if self.problem.rhs == "n" else (n, k)
        return self.rhs_offset + outer * self.rhs_stride + inner

    def addend_index(self, m: Index, n: Index) -> Any:
        """Position of ``addend[m, n]`` in :attr:`addend`; n = 0 for ``ADD_COLUMN``."""
        return self.addend_offset + m * self.addend_stride + n

    def out_index(self, m: Index, n: Index) -> Any:
        """Position of ``out[m, n]`` in :attr:`out`."""
        return self.out_offset + m * self.out_stride + n


def kernel_function(
    problem: Problem,
    symbol: str,
    body: Callable[[Matrix], None],
    around: Callable[[], AbstractContextManager[None]] = nullcontext,
) -> Any:
    """The PrimFunc of a kernel: arguments, batch loop, and ``body`` for one matrix.

    Parameters
    ----------
    problem
        What is computed.
    symbol
        Name of the function.
    body
        Emits the statements that compute one matrix.
    around
        Entered and left around the batch loop: emits what precedes and what follows it.

    Returns
    -------
    tvm.tirx.PrimFunc
        With the arguments listed in ``docs/architecture.md``.
    """
    compute_dtype = COMPUTE_DTYPES[problem.dtype]
    with IRBuilder() as builder, T.prim_func():
        T.func_name(symbol)
        dtypes = dict.fromkeys(POINTERS, problem.dtype) | {"workspace": compute_dtype}
        pointers = {
            name: T.arg(name, T.handle(storage_dtype(dtype))) for name, dtype in dtypes.items()
        }
        arg = {name: T.arg(name, tirx.Var(name, "int64")) for name in INTEGERS}
        scale = T.arg("scale", tirx.Var("scale", "float64"))
        if problem.is_generic:
            arg |= {name: T.arg(name, tirx.Var(name, "int64")) for name in "mnk"}
        T.func_attr({"global_symbol": symbol, "tirx.noalias": True})
        views = {
            # Operands are aligned to an element and no more: a tensor may be a slice.
            name: View(
                T.decl_buffer(
                    [int64(FLAT_ELEMENTS)],
                    storage_dtype(dtypes[name]),
                    data=pointer,
                    align=(
                        WORKSPACE_ALIGNMENT if name == "workspace" else ELEMENT_BYTES[problem.dtype]
                    ),
                ),
                dtypes[name],
            )
            for name, pointer in pointers.items()
        }
        scale = T.Bind(tirx.Cast(compute_dtype, scale) if compute_dtype != "float64" else scale)
        lead = ahead.lead(problem)
        # 0, since no batch is that long, but no compiler knows that.
        nothing = T.Bind(tirx.shift_right(arg["begin"], int64(62)))
        far = T.Bind(_is_far(problem, arg)) if lead else None
        with around(), T.serial(arg["begin"], arg["end"]) as index:
            batch = T.Bind(tirx.truncdiv(index, arg["heads"]))
            head = T.Bind(index - batch * arg["heads"])
            placed: dict[str, Any] = {}
            for name in ("lhs", "rhs", "addend", "out"):
                placed[f"{name}_offset"] = T.Bind(
                    batch * arg[f"{name}_batch_stride"] + head * arg[f"{name}_head_stride"]
                )
                placed[f"{name}_stride"] = arg[f"{name}_stride"]
            prefetched = None
            if lead:
                later = {
                    name: _later(name, arg, head, lead) + placed[f"{name}_offset"]
                    for name in ("lhs", "rhs")
                }
                prefetched = Ahead(_rows_of(problem, views, later, arg), far)
            m, n, k = (arg["m"], arg["n"], arg["k"]) if problem.is_generic else problem.extents()
            body(
                Matrix(
                    problem=problem,
                    m=m,
                    n=n,
                    k=k,
                    scale=scale,
                    addend_kind=arg["addend_kind"],
                    nothing=nothing,
                    ahead=prefetched,
                    **views,
                    **placed,
                )
            )
    return builder.get()


def _is_far(problem: Problem, arg: Mapping[str, Any]) -> Any:
    """Whether the operands of the range that a call computes are worth asking for."""
    size = (arg["end"] - arg["begin"]) * ahead.operand_bytes(problem)
    return size >= int64(ahead.FAR_BYTES)


def _later(name: str, arg: Mapping[str, Any], head: Any, lead: int) -> Any:
    """Elements from a matrix of an operand to the one that comes ``lead`` later in the batch.

    Where more batches than one lie between them, to some place nearby: a prefetch harms nothing.
    """
    batch_stride, head_stride = arg[f"{name}_batch_stride"], arg[f"{name}_head_stride"]
    heads = arg["heads"]
    next_batch = batch_stride + (lead - heads) * head_stride
    return tirx.Select(
        heads == int64(1),
        batch_stride * lead,
        tirx.Select(head + lead < heads, head_stride * lead, next_batch),
    )


def _rows_of(
    problem: Problem,
    views: Mapping[str, View],
    offsets: Mapping[str, Any],
    arg: Mapping[str, Any],
) -> tuple[Rows, ...]:
    """The rows of both operands of a matrix."""
    return tuple(
        Rows(views[name], T.Bind(offset), arg[f"{name}_stride"], *problem.stored(name))
        for name, offset in offsets.items()
    )
