#include "cc/dispatch/cuda_targets.h"

#include <array>

namespace tf_tvm_ops {
namespace {

constexpr char kPrefix[] = "cuda:";

struct Architecture {
  const char* target;
  int major;
  int minor;
};

constexpr std::array<Architecture, 8> kMachineCode{{{"cuda:sm_120", 12, 0},
                                                    {"cuda:sm_100", 10, 0},
                                                    {"cuda:sm_90", 9, 0},
                                                    {"cuda:sm_89", 8, 9},
                                                    {"cuda:sm_86", 8, 6},
                                                    {"cuda:sm_80", 8, 0},
                                                    {"cuda:sm_75", 7, 5},
                                                    {"cuda:sm_70", 7, 0}}};

constexpr Architecture kPtx{"cuda:compute_80", 8, 0};

}  // namespace

std::vector<std::string> KnownCudaTargets() {
  std::vector<std::string> targets;
  targets.reserve(kMachineCode.size() + 1);
  for (const Architecture& each : kMachineCode) targets.emplace_back(each.target);
  targets.emplace_back(kPtx.target);
  return targets;
}

std::vector<std::string> CudaTargetsFor(ComputeCapability capability) {
  std::vector<std::string> targets;
  for (const Architecture& each : kMachineCode) {
    if (each.major == capability.major && each.minor <= capability.minor) {
      targets.emplace_back(each.target);
    }
  }
  if (capability.major >= kPtx.major) targets.emplace_back(kPtx.target);
  return targets;
}

bool IsCudaTarget(const std::string& target) { return target.rfind(kPrefix, 0) == 0; }

}  // namespace tf_tvm_ops
