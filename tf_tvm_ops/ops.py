"""The ops, with gradients."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from tf_tvm_ops.library import load

__all__ = ["batch_matmul", "served_by"]


def batch_matmul(
    a: Any, b: Any, adj_x: bool = False, adj_y: bool = False, name: str | None = None
) -> tf.Tensor:
    """Multiply matrices in batches, as ``tf.matmul`` does.

    Parameters
    ----------
    a
        ``[..., M, K]``, or ``[..., K, M]`` with ``adj_x``. float32.
    b
        ``[..., K, N]``, or ``[..., N, K]`` with ``adj_y``. float32. Batch dimensions, all but the
        last two, are broadcast against those of ``a``.
    adj_x, adj_y
        Whether to transpose the matrices of ``a``, of ``b``.
    name
        A name for the operation.

    Returns
    -------
    tf.Tensor
        ``[..., M, N]``. With K = 0 it is all zeros.

    Raises
    ------
    tf.errors.InvalidArgumentError
        If a rank is below 2 or the shapes do not match; the text names both shapes. Inside a
        ``tf.function`` with known shapes it is a ``ValueError``, as it is for ``tf.matmul``.
    ImportError
        If the op library cannot be loaded: see `tf_tvm_ops.load`.
    """
    return load().tvm_batch_mat_mul(lhs=a, rhs=b, adj_x=adj_x, adj_y=adj_y, name=name)


def served_by(a: Any, b: Any, adj_x: bool = False, adj_y: bool = False) -> tf.Tensor:
    """Name what serves a `batch_matmul` of the same arguments.

    Returns
    -------
    tf.Tensor
        A scalar string: the symbol of a kernel; ``stock (reason)``; or ``zeros`` for an empty
        product.
    """
    return load().tvm_batch_mat_mul_served_by(lhs=a, rhs=b, adj_x=adj_x, adj_y=adj_y)


def _sum_to_batch_of(gradient: tf.Tensor, operand: tf.Tensor, other: tf.Tensor) -> tf.Tensor:
    """Sum the gradient over the batch dimensions in which ``operand`` was broadcast."""
    own, others = operand.shape[:-2], other.shape[:-2]
    if own.is_fully_defined() and own == others:
        return gradient
    shape = tf.shape(operand)
    axes, _ = tf.raw_ops.BroadcastGradientArgs(s0=shape[:-2], s1=tf.shape(other)[:-2])
    return tf.reshape(tf.reduce_sum(gradient, axis=axes), shape)


def _batch_matmul_gradient(op: Any, gradient: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """The gradients are products of the same kind, so that they are served, and differentiable."""
    a, b = op.inputs
    adj_x, adj_y = op.get_attr("adj_x"), op.get_attr("adj_y")
    if adj_x:
        grad_a = batch_matmul(b, gradient, adj_x=adj_y, adj_y=True)
    else:
        grad_a = batch_matmul(gradient, b, adj_y=not adj_y)
    if adj_y:
        grad_b = batch_matmul(gradient, a, adj_x=True, adj_y=adj_x)
    else:
        grad_b = batch_matmul(a, gradient, adj_x=not adj_x)
    return _sum_to_batch_of(grad_a, a, b), _sum_to_batch_of(grad_b, b, a)


tf.RegisterGradient("TvmBatchMatMul")(_batch_matmul_gradient)
