// The XLA kernels of this library, and how TensorFlow learns of them.
#ifndef TF_TVM_OPS_CC_XLA_KERNELS_H_
#define TF_TVM_OPS_CC_XLA_KERNELS_H_

#include "tensorflow/core/framework/op_kernel.h"

namespace tf_tvm_ops {

// The ops that have one.
inline constexpr const char* kXlaOps[] = {"TvmBatchMatMul", "TvmBatchMatMulAdd",
                                          "TvmBatchMatMulTranspose"};

// Makes the kernel of any of them.
tensorflow::OpKernel* MakeXlaKernel(tensorflow::OpKernelConstruction* ctx);

}  // namespace tf_tvm_ops

#endif  // TF_TVM_OPS_CC_XLA_KERNELS_H_
