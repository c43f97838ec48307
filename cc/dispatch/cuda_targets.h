// The GPU targets this version knows, and which of them a GPU can run.
#ifndef TF_TVM_OPS_CC_DISPATCH_CUDA_TARGETS_H_
#define TF_TVM_OPS_CC_DISPATCH_CUDA_TARGETS_H_

#include <string>
#include <vector>

#include "cc/dispatch/export.h"

namespace tf_tvm_ops {

// NVIDIA's version number of what a GPU can do: 9.0. {0, 0} for a GPU that nothing is known of.
struct ComputeCapability {
  int major = 0;
  int minor = 0;

  std::string ToString() const { return std::to_string(major) + "." + std::to_string(minor); }
};

// Machine code, the newest first, then PTX. The C++ twin of kernels/cuda/targets.py.
TF_TVM_OPS_EXPORT std::vector<std::string> KnownCudaTargets();

// Those of them that a GPU of this compute capability can run, best first: machine code of the same
// major version and no newer minor version, then PTX, which the driver compiles for any GPU that is
// not older.
TF_TVM_OPS_EXPORT std::vector<std::string> CudaTargetsFor(ComputeCapability capability);

// Whether the name of a target is that of a GPU, known or not.
bool IsCudaTarget(const std::string& target);

}  // namespace tf_tvm_ops

#endif  // TF_TVM_OPS_CC_DISPATCH_CUDA_TARGETS_H_
