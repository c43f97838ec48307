"""The ops, with gradients."""

from __future__ import annotations

import numbers
from typing import Any

import tensorflow as tf

# Imported because they register with TensorFlow how to differentiate and vectorize the ops.
from tf_tvm_ops import gradients, vectorization  # noqa: F401
from tf_tvm_ops.library import load

__all__ = ["batch_matmul", "batch_matmul_add", "batch_matmul_transpose", "served_by"]


def batch_matmul(
    a: Any,
    b: Any,
    adj_x: bool = False,
    adj_y: bool = False,
    *,
    scale: float = 1.0,
    a_length_first: bool = False,
    b_length_first: bool = False,
    name: str | None = None,
) -> tf.Tensor:
    """Multiply matrices in batches, as ``scale * tf.matmul(a, b)`` does.

    Parameters
    ----------
    a
        ``[..., M, K]``, or ``[..., K, M]`` with ``adj_x``. float32, float64, float16 or bfloat16.
    b
        ``[..., K, N]``, or ``[..., N, K]`` with ``adj_y``, of the same dtype. Batch dimensions, all
        but the last two, are broadcast against those of ``a``.
    adj_x, adj_y
        Whether to transpose the matrices of ``a``, of ``b``.
    scale
        A Python number that the product is multiplied by.
    a_length_first, b_length_first
        Whether the dimensions -3 and -2 of ``a``, of ``b``, come in the other order: ``[batch,
        length, heads, depth]``, as a dense layer leaves them, for ``[batch, heads, length,
        depth]``. They are put right before ``adj_x``, ``adj_y`` apply; no transpose is needed.
    name
        A name for the operation.

    Returns
    -------
    tf.Tensor
        ``[..., M, N]``, of the operands' dtype. float16 and bfloat16 are summed and scaled in
        float32 and rounded once. With K = 0 it is all zeros.

    Raises
    ------
    tf.errors.InvalidArgumentError
        If a rank is below 2, or below 3 for a length-first operand, or the shapes do not match; the
        text names the shapes. Inside a ``tf.function`` with known shapes it is a ``ValueError``, as
        it is for ``tf.matmul``.
    TypeError
        If ``scale`` is not a Python number.
    ImportError
        If the op library cannot be loaded: see `tf_tvm_ops.load`.
    """
    return load().tvm_batch_mat_mul(
        lhs=a,
        rhs=b,
        adj_x=adj_x,
        adj_y=adj_y,
        lhs_length_first=a_length_first,
        rhs_length_first=b_length_first,
        scale=_text(scale),
        name=name,
    )


def batch_matmul_add(
    a: Any,
    b: Any,
    addend: Any,
    adj_x: bool = False,
    adj_y: bool = False,
    *,
    scale: float = 1.0,
    a_length_first: bool = False,
    b_length_first: bool = False,
    name: str | None = None,
) -> tf.Tensor:
    """Multiply matrices in batches and add, as ``scale * tf.matmul(a, b) + addend`` does.

    Parameters
    ----------
    a, b, adj_x, adj_y, scale, a_length_first, b_length_first, name
        As of `batch_matmul`.
    addend
        A bias or mask of the same dtype, of any shape that can be broadcast against ``[..., M,
        N]``, such as ``[B, 1, 1, N]``, ``[M, N]`` or ``[]``. Where it has the larger dimension, the
        product is broadcast.

    Returns
    -------
    tf.Tensor
        ``[..., M, N]``, broadcast against ``addend``. float16 and bfloat16 are summed, scaled and
        added in float32 and rounded once. With K = 0 it is the addend.

    Raises
    ------
    tf.errors.InvalidArgumentError, TypeError, ImportError
        As `batch_matmul`; also if ``addend`` cannot be broadcast.
    """
    return load().tvm_batch_mat_mul_add(
        lhs=a,
        rhs=b,
        addend=addend,
        adj_x=adj_x,
        adj_y=adj_y,
        lhs_length_first=a_length_first,
        rhs_length_first=b_length_first,
        scale=_text(scale),
        name=name,
    )


def batch_matmul_transpose(
    a: Any,
    b: Any,
    adj_x: bool = False,
    adj_y: bool = False,
    *,
    scale: float = 1.0,
    a_length_first: bool = False,
    b_length_first: bool = False,
    name: str | None = None,
) -> tf.Tensor:
    """Multiply matrices in batches and write them length-first.

    With ``[batch, heads, M, K]`` and ``[batch, heads, K, N]`` as ``tf.transpose(scale *
    tf.matmul(a, b), [0, 2, 1, 3])`` does, ready to be reshaped to ``[batch, M, heads * N]``.

    Parameters
    ----------
    a, b, adj_x, adj_y, scale, a_length_first, b_length_first, name
        As of `batch_matmul`.

    Returns
    -------
    tf.Tensor
        ``[..., M, heads, N]``, where ``heads`` is the last of the broadcast batch dimensions.

    Raises
    ------
    tf.errors.InvalidArgumentError, TypeError, ImportError
        As `batch_matmul`; also if the product has fewer than 3 dimensions.
    """
    return load().tvm_batch_mat_mul_transpose(
        lhs=a,
        rhs=b,
        adj_x=adj_x,
        adj_y=adj_y,
        lhs_length_first=a_length_first,
        rhs_length_first=b_length_first,
        scale=_text(scale),
        name=name,
    )


def served_by(
    a: Any,
    b: Any,
    adj_x: bool = False,
    adj_y: bool = False,
    *,
    scale: float = 1.0,
    a_length_first: bool = False,
    b_length_first: bool = False,
    has_addend: bool = False,
    transpose: bool = False,
) -> tf.Tensor:
    """Name what serves a `batch_matmul` of the same arguments.

    Parameters
    ----------
    a, b, adj_x, adj_y, scale, a_length_first, b_length_first
        As of `batch_matmul`; the elements of ``a`` and ``b`` are not read.
    has_addend
        Whether it is `batch_matmul_add` that is meant, with an addend that does not enlarge the
        product.
    transpose
        Whether it is `batch_matmul_transpose` that is meant.

    Returns
    -------
    tf.Tensor
        A scalar string: the symbol of a kernel; ``stock (reason)``; or ``zeros`` for an empty
        product.

    Raises
    ------
    tf.errors.InvalidArgumentError, TypeError, ImportError
        As the op that is meant.
    """
    return load().tvm_batch_mat_mul_served_by(
        lhs=a,
        rhs=b,
        adj_x=adj_x,
        adj_y=adj_y,
        lhs_length_first=a_length_first,
        rhs_length_first=b_length_first,
        scale=_text(scale),
        has_addend=has_addend,
        output_length_first=transpose,
    )


def _text(scale: float) -> str:
    """The number as the attribute ``scale`` has it; ``repr`` loses nothing of a float."""
    if isinstance(scale, numbers.Real) and not isinstance(scale, bool):
        return repr(float(scale))
    raise TypeError(
        f"scale: expected a Python number, got {type(scale).__name__}; it is an attribute of the "
        "op. Multiply the result by a tensor instead."
    )
