"""Ways to compute a product: what is timed."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Protocol

from tf_tvm_ops.kernels.arguments import NOWHERE, kernel_arguments
from tf_tvm_ops.kernels.elements import ADD_MATRIX, ADD_NOTHING
from tf_tvm_ops.tools.gpu_check.buffers import SCALE, Buffers
from tf_tvm_ops.tools.gpu_check.cases import MASK
from tf_tvm_ops.tools.gpu_check.images import Choice
from tf_tvm_ops.tools.gpu_check.session import Session

OURS, OURS_FUSED = "ours", "ours fused"
CUBLAS, CUBLAS_PASSES = "cuBLAS", "cuBLAS + passes"
COMPILED, TRITON = "torch.compile", "Triton"

WAYS = (OURS, OURS_FUSED, CUBLAS, CUBLAS_PASSES, COMPILED, TRITON)
"""All of them. Those without an epilogue compute the bare product."""

BARE = (OURS, CUBLAS)


class Way(Protocol):
    """A way to compute the case of some buffers."""

    def enqueue(self, index: int) -> None:
        """Compute one copy, on the session's stream."""

    def capture(self, indices: Sequence[int]) -> Graph:
        """Computing these copies one after the other, as a graph."""

    def settle(self, index: int) -> None:
        """Put the result of a copy into the buffers, if it is elsewhere; make it NaN there."""


class Graph(Protocol):
    """Launches that are started at once."""

    def launch(self) -> None:
        """Enqueue all of them on the session's stream."""

    def close(self) -> None:
        """Free it."""


class Ours:
    """A kernel of the bundle.

    Parameters
    ----------
    session
        Of the worker.
    buffers
        The operands.
    choice
        The kernel.
    fused
        Whether the epilogue of the case is computed too.
    """

    def __init__(self, session: Session, buffers: Buffers, choice: Choice, *, fused: bool) -> None:
        self._session = session
        self._buffers = buffers
        masked = fused and buffers.case.epilogue == MASK
        problem = choice.kernel.problem
        arguments = kernel_arguments(
            buffers.place("lhs", 0),
            buffers.place("rhs", 0),
            buffers.out_place(0, fused=fused),
            heads=buffers.heads,
            end=buffers.batch * buffers.heads,
            addend=buffers.place("addend", 0) if masked else NOWHERE,
            addend_kind=ADD_MATRIX if masked else ADD_NOTHING,
            scale=SCALE if masked else 1.0,
            extents=(buffers.m, buffers.n, buffers.k) if problem.is_generic else (),
        )
        self._call = session.images.function(choice).prepare(*arguments)
        names = ("lhs", "rhs", "addend", "out") if masked else ("lhs", "rhs", "out")
        self._pointers = [({"lhs": 0, "rhs": 1, "addend": 2, "out": 3}[n], n) for n in names]

    def enqueue(self, index: int) -> None:
        """See :class:`Way`."""
        for position, name in self._pointers:
            self._call.set(position, ctypes.c_void_p(self._buffers.address(name, index)))
        self._call()

    def capture(self, indices: Sequence[int]) -> Graph:
        """See :class:`Way`."""
        return _OwnGraph(self, self._session, indices)

    def settle(self, index: int) -> None:
        """The result is where it belongs."""


class _OwnGraph:
    """See :class:`Graph`."""

    def __init__(self, way: Ours, session: Session, indices: Sequence[int]) -> None:
        def enqueue() -> None:
            for index in indices:
                way.enqueue(index)

        self._stream = session.stream
        self._graph = session.stream.capture(enqueue)

    def launch(self) -> None:
        """See :class:`Graph`."""
        self._graph.launch(self._stream)

    def close(self) -> None:
        """See :class:`Graph`."""
        self._graph.close()
