// An immutable map from problem to kernels.
#ifndef TF_TVM_OPS_CC_DISPATCH_KERNEL_TABLE_H_
#define TF_TVM_OPS_CC_DISPATCH_KERNEL_TABLE_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "cc/dispatch/image.h"
#include "cc/dispatch/problem.h"

namespace tf_tvm_ops {

class KernelTable {
 public:
  // `kernels`: the preferred ones first; several may be for the same problem.
  explicit KernelTable(const std::vector<const PackKernel*>& kernels);

  bool empty() const { return kernels_.empty(); }

  // The kernels for a problem, the preferred first.
  struct Candidates {
    const PackKernel* const* first;
    const PackKernel* const* last;
    const PackKernel* const* begin() const { return first; }
    const PackKernel* const* end() const { return last; }
  };
  Candidates Find(const Problem& problem) const {
    // Linear probing; at least half of the slots are empty, so the search ends.
    size_t index = ProblemHash()(problem) & mask_;
    while (slots_[index].begin != slots_[index].end) {
      const Slot& slot = slots_[index];
      if (slot.problem == problem)
        return {&kernels_[slot.begin], &kernels_[slot.begin] + (slot.end - slot.begin)};
      index = (index + 1) & mask_;
    }
    return {nullptr, nullptr};
  }

 private:
  struct Slot {
    Problem problem;
    uint32_t begin = 0;  // range of kernels_; empty if the slot is
    uint32_t end = 0;
  };
  std::vector<Slot> slots_;  // a power of two of them
  size_t mask_;
  std::vector<const PackKernel*> kernels_;  // grouped by problem
};

}  // namespace tf_tvm_ops

#endif  // TF_TVM_OPS_CC_DISPATCH_KERNEL_TABLE_H_
