// Shape rules shared by the products of the op family: those of stock BatchMatMulV2 and AddV2.
#ifndef TF_TVM_OPS_CC_OPS_MATMUL_SHAPES_H_
#define TF_TVM_OPS_CC_OPS_MATMUL_SHAPES_H_

#include "absl/status/status.h"
#include "cc/dispatch/product.h"
#include "cc/ops/matmul_attrs.h"
#include "tensorflow/core/framework/tensor_shape.h"

namespace tf_tvm_ops {

// How the operands of one product relate to each other.
struct MatMulShapes {
  // What a kernel needs, apart from the data pointers: all that the op does, written to `output`;
  // but lhs·rhs alone, written row-major to `product_shape`, if `enlarged`. Set when refusal is
  // kNone.
  Product product;
  Refusal refusal = Refusal::kNone;
  // The shape of lhs·rhs, [batch..., M, N].
  tensorflow::TensorShape product_shape;
  tensorflow::TensorShape output;
  // The addend has elements for which lhs·rhs has to be broadcast.
  bool enlarged = false;
  // Every batch dimension of both operands has the extent of the product's.
  bool same_batch = true;
  // rhs is one matrix for all batches, and lhs row-major: one large product.
  bool single_rhs = true;

  // An operand is, or the product becomes, length-first, so that stock needs a transpose.
  bool reordered = false;

  // Whether it is a product of as many matrices as matrices, or of one and one.
  bool is_plain() const { return same_batch || single_rhs; }
};

// Fills `shapes`, or InvalidArgument that names the shapes. `addend` is null without one. Allocates
// nothing for ranks that TensorShape holds inline.
absl::Status ResolveMatMulShapes(const MatMulAttrs& attrs, const tensorflow::TensorShape& lhs,
                                 const tensorflow::TensorShape& rhs,
                                 const tensorflow::TensorShape* addend, MatMulShapes* shapes);

// `shape`, of a tensor that is not empty, with the dimensions -3 and -2 in the other order if the
// layout says so.
tensorflow::TensorShape HeadsFirst(const tensorflow::TensorShape& shape,
                                   const MatMulLayout& layout);

}  // namespace tf_tvm_ops

#endif  // TF_TVM_OPS_CC_OPS_MATMUL_SHAPES_H_
