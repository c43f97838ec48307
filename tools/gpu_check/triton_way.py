"""The same product as a plain kernel in Triton, with the epilogue in it, autotuned."""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

from tf_tvm_ops.tools.gpu_check import torch_ways
from tf_tvm_ops.tools.gpu_check.buffers import SCALE, Buffers
from tf_tvm_ops.tools.gpu_check.cases import MASK
from tf_tvm_ops.tools.gpu_check.session import Session

_TILES = (  # M, N, K, warps
    (16, 16, 32, 1),
    (16, 32, 32, 2),
    (16, 32, 64, 4),
    (32, 32, 32, 2),
    (32, 32, 64, 4),
    (32, 64, 32, 4),
    (64, 64, 32, 4),
    (128, 64, 32, 4),
)


@triton.autotune(  # type: ignore[untyped-decorator]
    configs=[
        triton.Config({"tile_m": m, "tile_n": n, "tile_k": k}, num_warps=warps, num_stages=3)
        for m, n, k, warps in _TILES
    ],
    key=["m", "n", "k", "masked"],
)
@triton.jit  # type: ignore[untyped-decorator]
def _kernel(  # type: ignore[no-untyped-def]
    lhs,
    rhs,
    addend,
    out,
    m: tl.constexpr,
    n: tl.constexpr,
    k: tl.constexpr,
    heads: tl.constexpr,
    lhs_batch,
    lhs_m,
    lhs_k,
    rhs_batch,
    rhs_k,
    rhs_n,
    out_batch,
    out_head,
    out_m,
    scale,
    masked: tl.constexpr,
    matrices,
    tile_m: tl.constexpr,
    tile_n: tl.constexpr,
    tile_k: tl.constexpr,
):
    matrix = tl.program_id(0).to(tl.int64)
    tiles_n: tl.constexpr = (n + tile_n - 1) // tile_n
    first_m = (tl.program_id(1) // tiles_n) * tile_m
    first_n = (tl.program_id(1) % tiles_n) * tile_n
    row = first_m + tl.arange(0, tile_m)
    column = first_n + tl.arange(0, tile_n)
    inner = tl.arange(0, tile_k)
    lhs += matrix * lhs_batch
    rhs += matrix * rhs_batch
    total = tl.zeros((tile_m, tile_n), tl.float32)
    for start in range(0, k, tile_k):
        depth = start + inner
        a = tl.load(
            lhs + row[:, None] * lhs_m + depth[None, :] * lhs_k,
            mask=(row[:, None] < m) & (depth[None, :] < k),
            other=0.0,
        )
        b = tl.load(
            rhs + depth[:, None] * rhs_k + column[None, :] * rhs_n,
            mask=(depth[:, None] < k) & (column[None, :] < n),
            other=0.0,
        )
        total = tl.dot(a, b, total, input_precision="ieee")
    if masked:
        values = tl.load(addend + (matrix // heads) * n + column, mask=column < n, other=0.0)
        total = total * scale + values[None, :].to(tl.float32)
    out += (matrix // heads) * out_batch + (matrix % heads) * out_head
    tl.store(
        out + row[:, None] * out_m + column[None, :],
        total.to(out.dtype.element_ty),
        mask=(row[:, None] < m) & (column[None, :] < n),
    )


class Triton(torch_ways.TorchWay):
    """See the module. Not for float64."""

    def __init__(self, session: Session, buffers: Buffers) -> None:
        super().__init__(session, buffers)
        if buffers.case.problem.dtype == "float64":
            raise NotImplementedError("float64 is not compared with Triton")

    def compute(self, index: int) -> None:
        """See :class:`~.torch_ways.TorchWay`."""
        buffers = self._buffers
        lhs, rhs, addend, out = self.operands(index)
        masked = buffers.case.epilogue == MASK
        _kernel[_grid](
            *(lhs, rhs, addend, out),
            *(buffers.m, buffers.n, buffers.k, buffers.heads),
            *lhs.stride(),
            *rhs.stride(),
            *buffers.out_place(index, fused=True).strides,
            *(SCALE, masked, buffers.batch * buffers.heads),
        )


def _grid(arguments: dict[str, Any]) -> tuple[int, int]:
    m, n = (triton.cdiv(arguments[extent], arguments[f"tile_{extent}"]) for extent in ("m", "n"))
    return arguments["matrices"], m * n


def version() -> str:
    """Of Triton, with PyTorch's."""
    return f"{triton.__version__} with PyTorch {torch.__version__}"
