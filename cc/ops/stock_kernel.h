// TensorFlow's own batch matmul kernels, run from inside an op of ours.
#ifndef TF_TVM_OPS_CC_OPS_STOCK_KERNEL_H_
#define TF_TVM_OPS_CC_OPS_STOCK_KERNEL_H_

#include <memory>

#include "absl/status/status.h"
#include "cc/ops/matmul_shapes.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace tf_tvm_ops {

// What TensorFlow itself would run for BatchMatMulV2: the oneDNN kernel where IsMKLEnabled() and
// this TensorFlow has one, the Eigen kernel otherwise.
//
// Two faults of stock are kept out: inputs that are not aligned to EIGEN_MAX_ALIGN_BYTES are
// copied (stock aborts the process on them), and the oneDNN kernel, which writes out of bounds for
// some broadcast shapes such as [13,1,3,4] x [4,16], is given plain three-dimensional products
// only; those that cannot be expressed so go to the Eigen kernel.
class StockBatchMatMul {
 public:
  static absl::Status Make(tensorflow::OpKernelConstruction* ctx, tensorflow::DataType dtype,
                           bool adj_x, bool adj_y, std::unique_ptr<StockBatchMatMul>* stock);

  // Computes `shapes` of inputs 0 and 1 of `ctx` and sets output 0. None of M, N, K, nor the
  // number of matrices may be 0.
  absl::Status Run(tensorflow::OpKernelContext* ctx, const MatMulShapes& shapes) const;

 private:
  StockBatchMatMul() = default;

  bool adj_x_ = false;
  std::unique_ptr<tensorflow::OpKernel> eigen_;
  std::unique_ptr<tensorflow::OpKernel> onednn_;  // null where stock would not use it
};

}  // namespace tf_tvm_ops

#endif  // TF_TVM_OPS_CC_OPS_STOCK_KERNEL_H_
