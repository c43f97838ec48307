// TensorFlow's own batch matmul kernels, run from inside an op of ours.
#ifndef TF_TVM_OPS_CC_OPS_STOCK_KERNEL_H_
#define TF_TVM_OPS_CC_OPS_STOCK_KERNEL_H_

#include <memory>

#include "absl/status/status.h"
#include "cc/ops/matmul_attrs.h"
#include "cc/ops/matmul_shapes.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/tensor.h"

namespace tf_tvm_ops {

// What TensorFlow itself would run for BatchMatMulV2: the oneDNN kernel where IsMKLEnabled() and
// this TensorFlow has one, the Eigen kernel otherwise.
//
// Two faults of stock are kept out: inputs that are not aligned to EIGEN_MAX_ALIGN_BYTES are
// copied (stock aborts the process on them), and the oneDNN kernel, which writes out of bounds for
// some broadcast shapes such as [13,1,3,4] x [4,16], is given plain three-dimensional products
// only; those that cannot be expressed so go to the Eigen kernel.
//
// 16-bit operands are converted to float32 where the product would else be rounded more than once:
// before scale and addend and after them, or, in bfloat16 by Eigen, in the middle of sums.
class StockBatchMatMul {
 public:
  static absl::Status Make(tensorflow::OpKernelConstruction* ctx, const MatMulAttrs& attrs,
                           std::unique_ptr<StockBatchMatMul>* stock);

  // Computes lhs·rhs of inputs 0 and 1 of `ctx`, without scale or addend, of shape
  // shapes.product_shape. None of M, N, K, nor the number of matrices may be 0. The dtype is that
  // of the op if the product is rounded once, and else float32.
  absl::Status Run(tensorflow::OpKernelContext* ctx, const MatMulShapes& shapes,
                   tensorflow::Tensor* product) const;

 private:
  struct Kernel {
    tensorflow::DataType dtype = tensorflow::DT_INVALID;
    std::unique_ptr<tensorflow::OpKernel> op;
  };

  StockBatchMatMul() = default;

  MatMulAttrs attrs_;
  Kernel eigen_;
  Kernel onednn_;  // without an op where stock would not use it
};

// Whether TensorFlow multiplies matrices of this dtype with oneDNN here.
bool OneDnnTakes(tensorflow::DataType dtype);

}  // namespace tf_tvm_ops

#endif  // TF_TVM_OPS_CC_OPS_STOCK_KERNEL_H_
