// The kernels of this process: packs in, lookup by device and problem out.
#ifndef TF_TVM_OPS_CC_DISPATCH_DISPATCHER_H_
#define TF_TVM_OPS_CC_DISPATCH_DISPATCHER_H_

#include <memory>
#include <string>
#include <vector>

#include "cc/dispatch/cuda_targets.h"
#include "cc/dispatch/export.h"
#include "cc/dispatch/lookup.h"
#include "cc/dispatch/pack_info.h"

namespace tf_tvm_ops {

class TF_TVM_OPS_EXPORT Dispatcher {
 public:
  // `cpu_target_limit`: the best target to use ("cpu:x86-64-v3"); empty for the best of this CPU.
  // Any other text, such as "none", allows no target.
  explicit Dispatcher(std::string cpu_target_limit = "");
  ~Dispatcher();
  Dispatcher(const Dispatcher&) = delete;
  Dispatcher& operator=(const Dispatcher&) = delete;

  // The one of this process. Made on first use with the packs of the environment and the default
  // pack beside this library, and never destroyed.
  static Dispatcher& Global();

  // Reads the manifest of a pack and puts its kernels before those already there; kernels of a
  // pack with the same real path are replaced. Images are opened when a kernel of theirs is first
  // used. False, with one sentence in *error and nothing changed, if the pack cannot be used.
  bool LoadPack(const std::string& path, PackInfo* info, std::string* error);

  // The kernels for this CPU, and for GPUs of a compute capability, as the packs loaded have them
  // at any time. As long-lived as the dispatcher. The latter takes a lock: keep what it gives. A
  // pack with kernels for other GPUs only is one warning for each compute capability.
  const Lookup& cpu() const;
  const Lookup& gpu(ComputeCapability capability) const;

  // The packs loaded, the preferred first.
  std::vector<PackInfo> packs() const;

 private:
  struct State;
  const std::unique_ptr<State> state_;
};

}  // namespace tf_tvm_ops

#endif  // TF_TVM_OPS_CC_DISPATCH_DISPATCHER_H_
