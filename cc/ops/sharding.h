// Runs a kernel over a plan's matrices on TensorFlow's own intra-op threads.
#ifndef TF_TVM_OPS_CC_OPS_SHARDING_H_
#define TF_TVM_OPS_CC_OPS_SHARDING_H_

#include "absl/status/status.h"
#include "cc/dispatch/kernel.h"
#include "cc/dispatch/product.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace tf_tvm_ops {

// Estimated cost of one matrix of a product, in CPU cycles.
int64_t CyclesPerMatrix(const Product& product);

// Every matrix is computed by exactly one call, so that the result does not depend on the number
// of threads.
absl::Status RunSharded(tensorflow::OpKernelContext* ctx, const Plan& plan, const Kernel& kernel,
                        int64_t cycles_per_matrix);

}  // namespace tf_tvm_ops

#endif  // TF_TVM_OPS_CC_OPS_SHARDING_H_
