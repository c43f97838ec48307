"""From a problem to TensorIR: the signature of a kernel and its loop over the batch.

What happens inside one matrix is the business of a schedule rule, which is handed a
:class:`Matrix` and emits statements through TVM's IR builder.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tvm import tirx
from tvm.script.ir_builder import IRBuilder
from tvm.tirx.script.builder import ir as T

from .problem import Problem

KERNEL_ABI = 1
"""Version of the argument list; the twin of ``kKernelAbi`` in ``cc/dispatch/kernel.h``."""

WORKSPACE_ALIGNMENT = 64

_ELEMENTS = 1 << 48  # extent of the flat views of the operands: any index fits

_STRIDE_ARGUMENTS = (
    "lhs_batch_stride",
    "lhs_head_stride",
    "lhs_stride",
    "rhs_batch_stride",
    "rhs_head_stride",
    "rhs_stride",
    "out_batch_stride",
    "out_head_stride",
    "out_stride",
)

Index = Any
"""An int64 index: a Python int or a TensorIR expression."""


def int64(value: Index) -> Any:
    """``value`` as an int64 expression."""
    return tirx.IntImm("int64", value) if isinstance(value, int) else value


@dataclass(frozen=True)
class Matrix:
    """One matrix product of the batch, as a schedule rule sees it.

    Attributes
    ----------
    problem
        What is computed.
    m, n, k
        Its extents: ints, or expressions for a generic problem.
    lhs, rhs, out
        Flat views of the operands; index them with :meth:`lhs_index` and its siblings.
    workspace
        Scratch memory of the calling thread, aligned to ``WORKSPACE_ALIGNMENT`` bytes.
    """

    problem: Problem
    m: Index
    n: Index
    k: Index
    lhs: Any
    rhs: Any
    out: Any
    workspace: Any
    _lhs_offset: Any
    _lhs_stride: Any
    _rhs_offset: Any
    _rhs_stride: Any
    _out_offset: Any
    _out_stride: Any

    def lhs_index(self, m: Index, k: Index) -> Any:
        """Position of ``lhs[m, k]`` in :attr:`lhs`."""
        outer, inner = (m, k) if self.problem.lhs == "k" else (k, m)
        return self._lhs_offset + outer * self._lhs_stride + inner

    def rhs_index(self, k: Index, n: Index) -> Any:
        """Position of ``rhs[k, n]`` in :attr:`rhs`."""
        outer, inner = (k, n) if self.problem.rhs == "n" else (n, k)
        return self._rhs_offset + outer * self._rhs_stride + inner

    def out_index(self, m: Index, n: Index) -> Any:
        """Position of ``out[m, n]`` in :attr:`out`."""
        return self._out_offset + m * self._out_stride + n


def kernel_function(problem: Problem, symbol: str, body: Callable[[Matrix], None]) -> Any:
    """The PrimFunc of a kernel: arguments, batch loop, and ``body`` for one matrix.

    Parameters
    ----------
    problem
        What is computed.
    symbol
        Name of the function.
    body
        Emits the statements that compute one matrix.

    Returns
    -------
    tvm.tirx.PrimFunc
        With the arguments listed in ``docs/architecture.md``.
    """
    with IRBuilder() as builder, T.prim_func():
        T.func_name(symbol)
        pointers = {
            name: T.arg(name, T.handle(problem.dtype))
            for name in ("lhs", "rhs", "out", "workspace")
        }
        names: tuple[str, ...] = ("begin", "end", "heads", *_STRIDE_ARGUMENTS)
        if problem.is_generic:
            names += ("m", "n", "k")
        arg = {name: T.arg(name, tirx.Var(name, "int64")) for name in names}
        T.func_attr({"global_symbol": symbol, "tirx.noalias": True})
        views = {
            # Operands are aligned to an element and no more: a tensor may be a slice.
            name: T.decl_buffer(
                [int64(_ELEMENTS)],
                problem.dtype,
                data=pointer,
                align=WORKSPACE_ALIGNMENT if name == "workspace" else 4,
            )
            for name, pointer in pointers.items()
        }
        with T.serial(arg["begin"], arg["end"]) as index:
            batch = T.Bind(tirx.truncdiv(index, arg["heads"]))
            head = T.Bind(index - batch * arg["heads"])
            offsets = {
                name: T.Bind(
                    batch * arg[f"{name}_batch_stride"] + head * arg[f"{name}_head_stride"]
                )
                for name in ("lhs", "rhs", "out")
            }
            m, n, k = (arg["m"], arg["n"], arg["k"]) if problem.is_generic else problem.extents()
            body(
                Matrix(
                    problem=problem,
                    m=m,
                    n=n,
                    k=k,
                    lhs=views["lhs"],
                    rhs=views["rhs"],
                    out=views["out"],
                    workspace=views["workspace"],
                    _lhs_offset=offsets["lhs"],
                    _lhs_stride=arg["lhs_stride"],
                    _rhs_offset=offsets["rhs"],
                    _rhs_stride=arg["rhs_stride"],
                    _out_offset=offsets["out"],
                    _out_stride=arg["out_stride"],
                )
            )
    return builder.get()
