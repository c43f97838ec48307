// The table of kernels of this process: packs in, lookup by problem out.
#ifndef TF_TVM_OPS_CC_DISPATCH_DISPATCHER_H_
#define TF_TVM_OPS_CC_DISPATCH_DISPATCHER_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "cc/dispatch/cpu_features.h"
#include "cc/dispatch/export.h"
#include "cc/dispatch/kernel.h"
#include "cc/dispatch/problem.h"
#include "cc/dispatch/product.h"

namespace tf_tvm_ops {

class KernelTable;

struct TF_TVM_OPS_EXPORT PackInfo {
  std::string path;                  // real path of the folder
  int64_t kernels = 0;               // problems it has a kernel for that is usable on this machine
  std::vector<std::string> targets;  // of the images in use, best first
  std::vector<std::string> ignored;  // images that are not used: "cuda:sm_80: ..." and why
};

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

  // The kernel for exactly this problem, or nullptr. No lock, no allocation. The kernel returned
  // may still fail to load: ask Ready(). Kernels whose image is known to have failed are passed
  // over while there is another.
  const Kernel* Find(const Problem& problem) const;

  // The same, loaded: the first kernel for exactly this problem that is Ready(). If there is none,
  // nullptr, and kNoKernel or kImage in *refusal, which is else left alone.
  const Kernel* FindReady(const Problem& problem, Refusal* refusal) const;

  // The packs loaded, the preferred first.
  std::vector<PackInfo> packs() const;

 private:
  struct State;
  const std::unique_ptr<State> state_;
  // An immutable snapshot; each LoadPack puts a new one here, and none is ever freed, since a
  // reader may be anywhere in it.
  std::atomic<const KernelTable*> table_;
};

}  // namespace tf_tvm_ops

#endif  // TF_TVM_OPS_CC_DISPATCH_DISPATCHER_H_
