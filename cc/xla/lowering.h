// Products of the op family as XLA computations.
#ifndef TF_TVM_OPS_CC_XLA_LOWERING_H_
#define TF_TVM_OPS_CC_XLA_LOWERING_H_

#include <optional>

#include "cc/ops/matmul_attrs.h"
#include "cc/ops/matmul_shapes.h"
#include "tensorflow/core/framework/tensor_shape.h"
#include "xla/hlo/builder/xla_builder.h"

namespace tf_tvm_ops {

// A tensor while XLA compiles.
struct XlaOperand {
  xla::XlaOp op;
  tensorflow::TensorShape shape;
};

// What the op with these attributes gives for these operands. `shapes` is what ResolveMatMulShapes
// found for them. 16-bit types are summed, scaled and added in float32 and rounded once. Adjoint
// operands and broadcast batch dimensions cost no operation of their own: they are dimension
// numbers of the dot.
xla::XlaOp LowerMatMul(const MatMulAttrs& attrs, const MatMulShapes& shapes, const XlaOperand& lhs,
                       const XlaOperand& rhs, const std::optional<XlaOperand>& addend);

}  // namespace tf_tvm_ops

#endif  // TF_TVM_OPS_CC_XLA_LOWERING_H_
