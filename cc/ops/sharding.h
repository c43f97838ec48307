// Shares work among TensorFlow's own intra-op threads.
#ifndef TF_TVM_OPS_CC_OPS_SHARDING_H_
#define TF_TVM_OPS_CC_OPS_SHARDING_H_

#include <cstdint>
#include <functional>
#include <string>

#include "cc/dispatch/kernel.h"
#include "cc/dispatch/product.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace tf_tvm_ops {

// Estimated cost of one matrix of a product, in CPU cycles.
int64_t CyclesPerMatrix(const Product& product);

// Does parts [begin, end) of the work [0, size), each once; an empty string, or what went wrong.
using RangeFunction = std::function<std::string(int64_t begin, int64_t end)>;

// Calls `function` for all of [0, size) in ranges, on as many threads as are worth waking for units
// of so many cycles, the calling one among them. Returns when all is done: what `function` refers
// to need not live longer. The first error, or an empty string.
std::string ShareOut(tensorflow::OpKernelContext* ctx, int64_t size, int64_t cycles_per_unit,
                     const RangeFunction& function);

// Every matrix is computed by exactly one call, so that the result does not depend on the number
// of threads. An empty string, or what went wrong, after which no thread is at work any more.
std::string RunSharded(tensorflow::OpKernelContext* ctx, const Plan& plan, const Kernel& kernel,
                       int64_t cycles_per_matrix);

}  // namespace tf_tvm_ops

#endif  // TF_TVM_OPS_CC_OPS_SHARDING_H_
