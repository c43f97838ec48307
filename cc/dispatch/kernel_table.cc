#include "cc/dispatch/kernel_table.h"

#include <unordered_map>

namespace tf_tvm_ops {

KernelTable::KernelTable(const std::vector<const PackKernel*>& kernels) {
  std::unordered_map<Problem, std::vector<const PackKernel*>, ProblemHash> groups;
  for (const PackKernel* kernel : kernels) groups[kernel->problem()].push_back(kernel);

  size_t size = 2;
  while (size < 2 * groups.size()) size *= 2;
  slots_.resize(size);
  mask_ = size - 1;
  kernels_.reserve(kernels.size());
  for (const auto& [problem, candidates] : groups) {
    size_t index = ProblemHash()(problem) & mask_;
    while (slots_[index].begin != slots_[index].end) index = (index + 1) & mask_;
    Slot& slot = slots_[index];
    slot.problem = problem;
    slot.begin = static_cast<uint32_t>(kernels_.size());
    kernels_.insert(kernels_.end(), candidates.begin(), candidates.end());
    slot.end = static_cast<uint32_t>(kernels_.size());
  }
}

}  // namespace tf_tvm_ops
