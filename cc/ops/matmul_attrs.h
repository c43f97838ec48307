// What the ops of the family have in common besides their tensors.
#ifndef TF_TVM_OPS_CC_OPS_MATMUL_ATTRS_H_
#define TF_TVM_OPS_CC_OPS_MATMUL_ATTRS_H_

#include <string>

#include "absl/status/status.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/types.pb.h"

namespace tf_tvm_ops {

// How a tensor stores the matrices of a product.
struct MatMulLayout {
  bool adjoint = false;  // [..., columns, rows]
  // The dimensions -3 and -2 come in the other order, [..., length, heads, depth] for
  // [..., heads, length, depth]. They are put right before `adjoint` applies.
  bool length_first = false;
};

struct MatMulAttrs {
  tensorflow::DataType dtype = tensorflow::DT_INVALID;
  MatMulLayout lhs;
  MatMulLayout rhs;
  MatMulLayout output;          // never adjoint
  bool broadcast_batch = true;  // batch dimensions have to be equal otherwise
  double scale = 1.0;
  bool has_addend = false;

  // Reads them from a node of any op of the family, XLA's among them.
  static absl::Status Read(tensorflow::OpKernelConstruction* ctx, MatMulAttrs* attrs);
};

// The attribute `scale` is text, "0.125", because TensorFlow keeps float attributes in float32 and
// cannot set tensor attributes in eager mode.
absl::Status ParseScale(const std::string& text, double* scale);

}  // namespace tf_tvm_ops

#endif  // TF_TVM_OPS_CC_OPS_MATMUL_ATTRS_H_
