"""What PyTorch offers for the same product: cuBLAS, and its own compiler."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

from tf_tvm_ops.tools.gpu_check.buffers import SCALE, Buffers
from tf_tvm_ops.tools.gpu_check.cases import MASK
from tf_tvm_ops.tools.gpu_check.session import Session

Tensor = Any  # the types of torch are not at hand where this is checked

_TYPES = {
    "float32": ("<f4", torch.float32),
    "float64": ("<f8", torch.float64),
    "float16": ("<f2", torch.float16),
    "bfloat16": ("<i2", torch.bfloat16),  # an interface that does not know it takes its bits
}


def prepare() -> None:
    """Full float32: with TF32 the answers would be others."""
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
    torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False


class _Foreign:
    """Memory of the GPU that is not PyTorch's."""

    def __init__(self, address: int, shape: Sequence[int], typestr: str) -> None:
        self.__cuda_array_interface__ = {
            "shape": tuple(shape),
            "typestr": typestr,
            "data": (address, False),
            "version": 3,
        }


def tensor(buffers: Buffers, name: str, index: int) -> Tensor:
    """An operand of a copy, as it is stored, in its own memory."""
    typestr, dtype = _TYPES[buffers.case.problem.dtype]
    foreign = _Foreign(buffers.address(name, index), buffers.shape(name), typestr)
    found = torch.as_tensor(foreign, device="cuda")
    return found if found.dtype == dtype else found.view(dtype)


class Operands(NamedTuple):
    """Tensors of one copy.

    Attributes
    ----------
    lhs, rhs
        [batch·heads, M, K] and [batch·heads, K, N], as views.
    addend, out
        As they are stored.
    """

    lhs: Tensor
    rhs: Tensor
    addend: Tensor
    out: Tensor


def operands(buffers: Buffers, index: int) -> Operands:
    """The tensors of a copy."""
    lhs, rhs = (tensor(buffers, name, index).flatten(0, 1) for name in ("lhs", "rhs"))
    problem = buffers.case.problem
    return Operands(
        lhs.transpose(1, 2) if problem.lhs == "m" else lhs,
        rhs.transpose(1, 2) if problem.rhs == "k" else rhs,
        tensor(buffers, "addend", index),
        tensor(buffers, "out", index),
    )


class _TorchGraph:
    """See :class:`~.ways.Graph`."""

    def __init__(self, way: TorchWay, stream: Any, indices: Sequence[int]) -> None:
        self._stream = stream
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.stream(stream):
            # Not the context manager torch.cuda.graph, which collects garbage each time.
            self._graph.capture_begin(capture_error_mode="thread_local")
            try:
                for index in indices:
                    way.compute(index)
            finally:
                self._graph.capture_end()

    def launch(self) -> None:
        """See :class:`~.ways.Graph`."""
        with torch.cuda.stream(self._stream):
            self._graph.replay()

    def close(self) -> None:
        """See :class:`~.ways.Graph`."""
        self._graph.reset()


class TorchWay:
    """A way whose work PyTorch enqueues."""

    def __init__(self, session: Session, buffers: Buffers) -> None:
        self._buffers = buffers
        self._operands: dict[int, Operands] = {}
        self._stream = torch.cuda.ExternalStream(session.stream.handle)

    def compute(self, index: int) -> None:
        """Compute one copy, on PyTorch's current stream."""
        raise NotImplementedError

    def operands(self, index: int) -> Operands:
        """The tensors of a copy."""
        if index not in self._operands:
            self._operands[index] = operands(self._buffers, index)
        return self._operands[index]

    def enqueue(self, index: int) -> None:
        """See :class:`~.ways.Way`."""
        with torch.cuda.stream(self._stream):
            self.compute(index)

    def capture(self, indices: Sequence[int]) -> _TorchGraph:
        """See :class:`~.ways.Way`."""
        for index in set(indices):
            self.operands(index)  # nothing but launches while capturing
        return _TorchGraph(self, self._stream, indices)

    def settle(self, index: int) -> None:
        """The result is where it belongs."""


class Cublas(TorchWay):
    """``torch.bmm``, and where ``fused`` each step of the epilogue as a pass of its own."""

    def __init__(self, session: Session, buffers: Buffers, *, fused: bool) -> None:
        super().__init__(session, buffers)
        self._masked = fused and buffers.case.epilogue == MASK
        # With one row or one head, the transposed result is the same memory.
        moved = buffers.m > 1 and buffers.heads > 1
        self._transposed = fused and not self._masked and moved
        if self._transposed:
            self._product = torch.empty_like(tensor(buffers, "out", 0))

    def compute(self, index: int) -> None:
        """See :class:`TorchWay`."""
        buffers = self._buffers
        lhs, rhs, addend, out = self.operands(index)
        product = self._product if self._transposed else out
        torch.bmm(lhs, rhs, out=product.flatten(0, 1))
        if self._masked:
            out.mul_(SCALE)
            out.add_(addend)
        if self._transposed:
            length_first = out.view(buffers.batch, buffers.m, buffers.heads, buffers.n)
            length_first.copy_(product.transpose(1, 2))


class Compiled(TorchWay):
    """The product with its epilogue, by ``torch.compile`` with autotuning.

    Its own CUDA graphs are off: it is captured as the others are.
    """

    def __init__(self, session: Session, buffers: Buffers) -> None:
        super().__init__(session, buffers)
        # Otherwise it gives up compiling after a few shapes.
        torch._dynamo.reset()
        self._function = torch.compile(
            _masked if buffers.case.epilogue == MASK else _transposed,
            mode="max-autotune-no-cudagraphs",
            dynamic=False,
        )
        self._results: dict[int, Tensor] = {}

    def compute(self, index: int) -> None:
        """See :class:`TorchWay`."""
        lhs, rhs, addend, _ = self.operands(index)
        self._results[index] = self._function(lhs, rhs, addend, self._buffers.heads)

    def settle(self, index: int) -> None:
        """See :class:`~.ways.Way`."""
        with torch.cuda.stream(self._stream):
            result = self._results[index]
            self.operands(index).out.view(result.shape).copy_(result)
            result.fill_(float("nan"))


def _masked(lhs: Tensor, rhs: Tensor, addend: Tensor, heads: int) -> Tensor:
    return torch.bmm(lhs, rhs).unflatten(0, (-1, heads)) * SCALE + addend


def _transposed(lhs: Tensor, rhs: Tensor, addend: Tensor, heads: int) -> Tensor:
    del addend
    return torch.bmm(lhs, rhs).unflatten(0, (-1, heads)).transpose(1, 2).contiguous()
