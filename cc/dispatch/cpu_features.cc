#include "cc/dispatch/cpu_features.h"

namespace tf_tvm_ops {

std::vector<std::string> KnownCpuTargets() {
  return {"cpu:x86-64-v4-bf16", "cpu:x86-64-v4", "cpu:x86-64-v3"};
}

std::vector<std::string> SupportedCpuTargets() {
  std::vector<std::string> targets;
#if defined(__x86_64__)
  // The compiler's run-time check takes literals only; it includes whether the operating system
  // saves the registers.
  if (__builtin_cpu_supports("x86-64-v4") && __builtin_cpu_supports("avx512bf16")) {
    targets.emplace_back("cpu:x86-64-v4-bf16");
  }
  if (__builtin_cpu_supports("x86-64-v4")) targets.emplace_back("cpu:x86-64-v4");
  if (__builtin_cpu_supports("x86-64-v3")) targets.emplace_back("cpu:x86-64-v3");
#endif
  return targets;
}

}  // namespace tf_tvm_ops
