// The CPU targets this version knows, and which of them this machine can run.
#ifndef TF_TVM_OPS_CC_DISPATCH_CPU_FEATURES_H_
#define TF_TVM_OPS_CC_DISPATCH_CPU_FEATURES_H_

#include <string>
#include <vector>

#include "cc/dispatch/export.h"

namespace tf_tvm_ops {

// Best first. A pack may hold images for others, which are ignored.
TF_TVM_OPS_EXPORT std::vector<std::string> KnownCpuTargets();

// Those of them this machine can run, best first: {"cpu:x86-64-v4", "cpu:x86-64-v3"}. Asks the
// operating system too, since it must save the wide registers.
TF_TVM_OPS_EXPORT std::vector<std::string> SupportedCpuTargets();

}  // namespace tf_tvm_ops

#endif  // TF_TVM_OPS_CC_DISPATCH_CPU_FEATURES_H_
