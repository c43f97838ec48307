// The libraries that GPU kernels need, opened when the first one is wanted. Nothing here is linked
// against: a machine without a GPU has none of them.
#ifndef TF_TVM_OPS_CC_DISPATCH_CUDA_RUNTIME_H_
#define TF_TVM_OPS_CC_DISPATCH_CUDA_RUNTIME_H_

#include <string>

#include "cc/dispatch/export.h"

namespace tf_tvm_ops {

// Functions of NVIDIA's driver and of its runtime library. All return 0 for success.
struct CudaApi {
  int (*context_of_thread)(void** context) = nullptr;     // cuCtxGetCurrent
  int (*set_context_of_thread)(void* context) = nullptr;  // cuCtxSetCurrent
  int (*query_stream)(void* stream) = nullptr;            // cuStreamQuery
  int (*device_count)(int* count) = nullptr;              // cudaGetDeviceCount
  int (*device_of_thread)(int* device) = nullptr;         // cudaGetDevice
  int (*set_device_of_thread)(int device) = nullptr;      // cudaSetDevice
  const char* (*error_text)(int error) = nullptr;         // cudaGetErrorString
};

// Whether NVIDIA's driver is installed. Opens its library, which starts nothing, on the first call.
TF_TVM_OPS_EXPORT bool HasCudaDriver();

// Opens driver, CUDA runtime and TVM's runtime on the first call. Null if any of them is missing or
// does not work, which one warning says, whoever asks first. Never throws.
const CudaApi* OpenCudaRuntime();

// What is missing, in one sentence, or nothing. Opens the libraries as OpenCudaRuntime does.
TF_TVM_OPS_EXPORT std::string CudaRuntimeProblem();

}  // namespace tf_tvm_ops

#endif  // TF_TVM_OPS_CC_DISPATCH_CUDA_RUNTIME_H_
