// The CPU targets this version knows, and which of them this machine can run.
#ifndef TF_TVM_OPS_CC_DISPATCH_CPU_FEATURES_H_
#define TF_TVM_OPS_CC_DISPATCH_CPU_FEATURES_H_

#include <string>
#include <vector>

#include "cc/dispatch/export.h"

namespace tf_tvm_ops {

// What the targets depend on.
struct CpuFeatures {
  bool x86_64_v3 = false;
  bool x86_64_v4 = false;
  bool avx512_bf16 = false;
  // Of the CPU; of use only if the operating system saves tile registers too.
  bool amx_tile = false;
  bool amx_bf16 = false;
  bool amx_fp16 = false;
  bool tiles_saved = false;
};

// Best first. A pack may hold images for others, which are ignored.
TF_TVM_OPS_EXPORT std::vector<std::string> KnownCpuTargets();

// Those of them that a machine with these features can run, best first.
TF_TVM_OPS_EXPORT std::vector<std::string> CpuTargetsWith(const CpuFeatures& features);

// Those of them this machine can run, best first: {"cpu:x86-64-v4", "cpu:x86-64-v3"}. Asks the
// operating system too, since it must save the wide registers.
TF_TVM_OPS_EXPORT std::vector<std::string> SupportedCpuTargets();

// Does what has to be done once in a process before code of the target may run: Linux gives tile
// registers to those who ask. Returns why the code must not run, or nothing.
TF_TVM_OPS_EXPORT std::string PrepareCpuTarget(const std::string& target);

}  // namespace tf_tvm_ops

#endif  // TF_TVM_OPS_CC_DISPATCH_CPU_FEATURES_H_
