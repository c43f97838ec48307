// The kernels of one kind of device.
#ifndef TF_TVM_OPS_CC_DISPATCH_LOOKUP_H_
#define TF_TVM_OPS_CC_DISPATCH_LOOKUP_H_

#include <atomic>
#include <string>
#include <vector>

#include "cc/dispatch/export.h"
#include "cc/dispatch/kernel.h"
#include "cc/dispatch/problem.h"
#include "cc/dispatch/product.h"

namespace tf_tvm_ops {

class KernelTable;
struct Pack;

// Safe to use from any thread, also while a pack is loaded; takes no lock and allocates nothing.
class TF_TVM_OPS_EXPORT Lookup {
 public:
  // `targets`: those that the device can run, best first.
  explicit Lookup(std::vector<std::string> targets);
  Lookup(const Lookup&) = delete;
  Lookup& operator=(const Lookup&) = delete;

  // The kernel for exactly this problem on one of the devices, or nullptr. The kernel returned may
  // still fail to load: ask Ready(). Kernels that are known to have failed, or whose image has, are
  // passed over while there is another.
  const Kernel* Find(const Problem& problem, int device) const;

  // The same, loaded: the first kernel for exactly this problem that is Ready() and has not failed.
  // If there is none, nullptr, and kNoKernel, kImage or kKernelFailed in *refusal, which is else
  // left alone.
  const Kernel* FindReady(const Problem& problem, int device, Refusal* refusal) const;

  // Whether no pack has a kernel for the device.
  bool empty() const;

  // Whether an image of the pack is for one of the targets.
  bool CanUse(const Pack& pack) const;

  // Takes the kernels of these packs in place of those before, the preferred first. Not from two
  // threads at once.
  void Use(const std::vector<const Pack*>& packs);

 private:
  const std::vector<std::string> targets_;
  // An immutable snapshot; each Use puts a new one here, and none is ever freed, since a reader may
  // be anywhere in it.
  std::atomic<const KernelTable*> table_;
};

}  // namespace tf_tvm_ops

#endif  // TF_TVM_OPS_CC_DISPATCH_LOOKUP_H_
