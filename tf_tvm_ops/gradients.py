"""The gradients of the ops. Importing this module registers them with TensorFlow.

They are made of the same ops, so that kernels serve them and they can be differentiated again.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import tensorflow as tf

from tf_tvm_ops.library import load


@dataclass(frozen=True)
class _Operand:
    """A tensor and how its matrices are stored; see `tf_tvm_ops.batch_matmul`."""

    tensor: tf.Tensor
    adjoint: bool = False
    length_first: bool = False

    def transposed(self) -> _Operand:
        """The same matrices, rows for columns."""
        return replace(self, adjoint=not self.adjoint)

    def matrix_dimensions(self) -> tuple[int, int]:
        """Where rows and columns are stored, in some order."""
        return (-3 if self.length_first else -2, -1)

    def matrices_shape(self) -> tf.Tensor:
        """The shape ``[..., rows, columns]`` of the matrices."""
        shape = tf.shape(self.tensor)
        if self.length_first:
            shape = tf.concat([shape[:-3], shape[-2:-1], shape[-3:-2], shape[-1:]], 0)
        if self.adjoint:
            shape = tf.concat([shape[:-2], shape[-1:], shape[-2:-1]], 0)
        return shape


def _operands(op: Any) -> tuple[_Operand, _Operand]:
    """The factors of one of our ops."""
    return (
        _Operand(op.inputs[0], op.get_attr("adj_x"), op.get_attr("lhs_length_first")),
        _Operand(op.inputs[1], op.get_attr("adj_y"), op.get_attr("rhs_length_first")),
    )


def _multiply(a: _Operand, b: _Operand, scale: Any, length_first: bool) -> tf.Tensor:
    """``scale * a @ b``, written in the order asked for."""
    ops = load()
    product = ops.tvm_batch_mat_mul_transpose if length_first else ops.tvm_batch_mat_mul
    return product(
        lhs=a.tensor,
        rhs=b.tensor,
        adj_x=a.adjoint,
        adj_y=b.adjoint,
        lhs_length_first=a.length_first,
        rhs_length_first=b.length_first,
        scale=scale,
    )


def _sum_to(gradient: tf.Tensor, shape: tf.Tensor) -> tf.Tensor:
    """Sum the gradient over the dimensions in which something of ``shape`` was broadcast."""
    axes, _ = tf.raw_ops.BroadcastGradientArgs(s0=shape, s1=tf.shape(gradient))
    return tf.reshape(tf.reduce_sum(gradient, axis=axes), shape)


def _sum_to_tensor(
    gradient: tf.Tensor, tensor: tf.Tensor, never_broadcast: tuple[int, ...] = ()
) -> tf.Tensor:
    """The same, with no sum in the graph if it is known that none is needed.

    ``never_broadcast`` are dimensions that `gradient` has from ``tensor`` itself.
    """
    whole, rank = gradient.shape, tensor.shape.rank
    if rank is not None and rank == whole.rank:
        # What is known to have another extent than 1 was not broadcast.
        extents = enumerate(zip(tensor.shape, whole), -rank)
        if all(i in never_broadcast or x not in (None, 1) or x == y == 1 for i, (x, y) in extents):
            return gradient
    return _sum_to(gradient, tf.shape(tensor))


def _gradients_of_operands(op: Any, gradient: _Operand) -> tuple[tf.Tensor, tf.Tensor]:
    """Those of ``a`` and ``b`` in ``scale * a @ b``, each in the layout of its operand."""
    a, b = _operands(op)
    scale = op.get_attr("scale")
    # Of matrices that are stored transposed, the gradient is wanted transposed.
    if a.adjoint:
        grad_a = _multiply(b, gradient.transposed(), scale, a.length_first)
    else:
        grad_a = _multiply(gradient, b.transposed(), scale, a.length_first)
    if b.adjoint:
        grad_b = _multiply(gradient.transposed(), a, scale, b.length_first)
    else:
        grad_b = _multiply(a.transposed(), gradient, scale, b.length_first)
    return (
        _sum_to_tensor(grad_a, a.tensor, a.matrix_dimensions()),
        _sum_to_tensor(grad_b, b.tensor, b.matrix_dimensions()),
    )


def _batch_matmul_gradient(op: Any, gradient: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    return _gradients_of_operands(op, _Operand(gradient))


def _batch_matmul_transpose_gradient(op: Any, gradient: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    return _gradients_of_operands(op, _Operand(gradient, length_first=True))


def _batch_matmul_add_gradient(
    op: Any, gradient: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    enlarged = _may_be_enlarged(op)
    of_product = _sum_to(gradient, _product_shape(op)) if enlarged else gradient
    return (*_batch_matmul_gradient(op, of_product), _sum_to_tensor(gradient, op.inputs[2]))


def _product_shape(op: Any) -> tf.Tensor:
    """The shape of ``a @ b``, ``[..., M, N]``."""
    a, b = (operand.matrices_shape() for operand in _operands(op))
    return tf.concat([tf.broadcast_dynamic_shape(a[:-2], b[:-2]), a[-2:-1], b[-1:]], 0)


def _may_be_enlarged(op: Any) -> bool:
    """Whether the addend may have more elements than the product, as far as shapes are known."""
    rank, addend = _rank_of_product(op), op.inputs[2].shape
    if rank is None or addend.rank is None or addend.rank > rank:
        return True
    # The product's own extent is not known, except that an addend of 1 cannot enlarge it, nor can
    # one of what the product has.
    product = _static_product_shape(op)
    aligned = list(product)[rank - addend.rank :]
    return not all(y == 1 or x not in (None, 1) for x, y in zip(aligned, addend))


def _rank_of_product(op: Any) -> int | None:
    ranks = [operand.tensor.shape.rank for operand in _operands(op)]
    return None if None in ranks else max(ranks)


def _static_product_shape(op: Any) -> list[int | None]:
    """The shape of ``a @ b``, whose rank is known, with None for what is not."""
    shapes = []
    for operand in _operands(op):
        shape = list(operand.tensor.shape)
        if operand.length_first:
            shape[-3], shape[-2] = shape[-2], shape[-3]
        if operand.adjoint:
            shape[-2], shape[-1] = shape[-1], shape[-2]
        shapes.append(shape)
    a, b = shapes
    batch = tf.broadcast_static_shape(tf.TensorShape(a[:-2]), tf.TensorShape(b[:-2]))
    return [*batch, a[-2], b[-1]]


tf.RegisterGradient("TvmBatchMatMul")(_batch_matmul_gradient)
tf.RegisterGradient("TvmBatchMatMulAdd")(_batch_matmul_add_gradient)
tf.RegisterGradient("TvmBatchMatMulTranspose")(_batch_matmul_transpose_gradient)
