// The environment variables in force. Their names, defaults and choices are those of
// tf_tvm_ops/config.py, from which the build writes config_env.h.
#ifndef TF_TVM_OPS_CC_DISPATCH_CONFIG_H_
#define TF_TVM_OPS_CC_DISPATCH_CONFIG_H_

#include <string>
#include <vector>

#include "cc/dispatch/export.h"

namespace tf_tvm_ops::config {

// Each is read on every call. A value that is not among the choices counts as the default, with
// one warning for each variable of the process.
TF_TVM_OPS_EXPORT std::string Fallback();
TF_TVM_OPS_EXPORT std::string CpuTarget();
TF_TVM_OPS_EXPORT std::string Rewrite();
// Folders of packs, the first preferred.
TF_TVM_OPS_EXPORT std::vector<std::string> Packs();
// Folders to look in for the libraries that GPU kernels need, the first preferred.
std::vector<std::string> CudaRuntime();
const char* CudaRuntimeVariable();  // its name
// As the others, but without the warning: the log itself depends on it, and warns on first use.
std::string LogLevel(std::string* warning);

}  // namespace tf_tvm_ops::config

#endif  // TF_TVM_OPS_CC_DISPATCH_CONFIG_H_
