// Calls of GPU kernels: on which GPU and stream.
#ifndef TF_TVM_OPS_CC_DISPATCH_CUDA_LAUNCH_H_
#define TF_TVM_OPS_CC_DISPATCH_CUDA_LAUNCH_H_

#include <string>

#include "cc/dispatch/export.h"
#include "cc/dispatch/kernel.h"
#include "cc/dispatch/product.h"

namespace tf_tvm_ops {

struct CudaStream {
  int device = 0;          // CUDA's number of the GPU
  void* stream = nullptr;  // a CUstream of it; null for the default stream
};

struct LaunchResult {
  std::string error;  // empty, or what went wrong
  // The kernel is at fault, such as one whose module or launch the driver refuses: the stream is as
  // good as before, so that something else can compute the product on it.
  bool refused = false;
};

// Enqueues all of a product, with a kernel for the GPU found for it, and returns: the host waits
// for nothing, reads and writes none of the data. k must not be 0. The calling thread's context and
// stream are as before afterwards. Thread-safe; never throws.
TF_TVM_OPS_EXPORT LaunchResult LaunchOnGpu(const Plan& plan, const Kernel& kernel,
                                           const CudaStream& where);

}  // namespace tf_tvm_ops

#endif  // TF_TVM_OPS_CC_DISPATCH_CUDA_LAUNCH_H_
