// Scratch memory for kernels, one buffer a thread.
#ifndef TF_TVM_OPS_CC_DISPATCH_WORKSPACE_H_
#define TF_TVM_OPS_CC_DISPATCH_WORKSPACE_H_

#include <cstdint>

namespace tf_tvm_ops {

constexpr int64_t kWorkspaceAlignment = 64;

// At least `bytes` of uninitialised memory aligned to kWorkspaceAlignment, valid until this thread
// asks again or ends; null for 0 bytes, or when there is no memory. Grows only, so that a steady
// load allocates nothing.
void* ThreadWorkspace(int64_t bytes);

}  // namespace tf_tvm_ops

#endif  // TF_TVM_OPS_CC_DISPATCH_WORKSPACE_H_
