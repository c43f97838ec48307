#include "cc/dispatch/lookup.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "cc/dispatch/immortal.h"
#include "cc/dispatch/kernel_table.h"
#include "cc/dispatch/pack.h"

namespace tf_tvm_ops {
namespace {

const KernelTable* MakeTable(const std::vector<const PackKernel*>& kernels) {
  return MakeImmortal(std::make_unique<const KernelTable>(kernels));
}

}  // namespace

Lookup::Lookup(std::vector<std::string> targets)
    : targets_(std::move(targets)), table_(MakeTable({})) {}

const Kernel* Lookup::Find(const Problem& problem, int device) const {
  const KernelTable::Candidates candidates = table_.load(std::memory_order_acquire)->Find(problem);
  for (const PackKernel* kernel : candidates) {
    if (!kernel->failed(device)) return kernel;
  }
  // All failed: the first says so when asked.
  return candidates.first == candidates.last ? nullptr : *candidates.first;
}

const Kernel* Lookup::FindReady(const Problem& problem, int device, Refusal* refusal) const {
  const KernelTable::Candidates candidates = table_.load(std::memory_order_acquire)->Find(problem);
  Refusal found = candidates.first == candidates.last ? Refusal::kNoKernel : Refusal::kImage;
  for (const PackKernel* kernel : candidates) {
    if (kernel->FailedOn(device)) {
      found = Refusal::kKernelFailed;
    } else if (kernel->Ready()) {
      return kernel;
    }
  }
  *refusal = found;
  return nullptr;
}

bool Lookup::empty() const { return table_.load(std::memory_order_acquire)->empty(); }

bool Lookup::CanUse(const Pack& pack) const {
  return std::any_of(pack.images.begin(), pack.images.end(), [this](const auto& image) {
    return std::find(targets_.begin(), targets_.end(), image->target()) != targets_.end();
  });
}

void Lookup::Use(const std::vector<const Pack*>& packs) {
  std::vector<const PackKernel*> kernels;
  for (const Pack* pack : packs) {
    for (const std::string& target : targets_) {
      for (const std::unique_ptr<Image>& image : pack->images) {
        if (image->target() != target) continue;
        for (const PackKernel& kernel : image->kernels()) kernels.push_back(&kernel);
      }
    }
  }
  table_.store(MakeTable(kernels), std::memory_order_release);
}

}  // namespace tf_tvm_ops
