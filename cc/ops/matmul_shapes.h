// Shape rules shared by the products of the op family: those of stock BatchMatMulV2.
#ifndef TF_TVM_OPS_CC_OPS_MATMUL_SHAPES_H_
#define TF_TVM_OPS_CC_OPS_MATMUL_SHAPES_H_

#include "absl/status/status.h"
#include "cc/dispatch/product.h"
#include "tensorflow/core/framework/tensor_shape.h"

namespace tf_tvm_ops {

// How the operands of one product relate to each other.
struct MatMulShapes {
  // What a kernel needs, apart from the data pointers; `out` is row-major. Batch dimensions are
  // already merged where both operands are contiguous over them. Set when refusal is kNone.
  Product product;
  Refusal refusal = Refusal::kNone;
  // The shape of lhs·rhs, batch dimensions first.
  tensorflow::TensorShape output;
  // Every batch dimension of both operands has the extent of the output's.
  bool same_batch = true;
  // rhs is one matrix for all batches.
  bool single_rhs = true;
};

// Fills `shapes`, or InvalidArgument that names both shapes. Allocates nothing for ranks that
// TensorShape holds inline.
absl::Status ResolveMatMulShapes(const tensorflow::TensorShape& lhs,
                                 const tensorflow::TensorShape& rhs, bool adj_x, bool adj_y,
                                 MatMulShapes* shapes);

}  // namespace tf_tvm_ops

#endif  // TF_TVM_OPS_CC_OPS_MATMUL_SHAPES_H_
