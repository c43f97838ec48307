#include "cc/dispatch/dispatcher.h"

#include <dlfcn.h>

#include <algorithm>
#include <exception>
#include <map>
#include <mutex>
#include <utility>

#include "cc/dispatch/config.h"
#include "cc/dispatch/file.h"
#include "cc/dispatch/immortal.h"
#include "cc/dispatch/log.h"
#include "cc/dispatch/pack.h"

namespace tf_tvm_ops {
namespace {

// The folder packs/default beside the folder of this library.
std::string DefaultPack() {
  Dl_info info{};
  std::string library;
  std::string error;
  if (dladdr(reinterpret_cast<void*>(&DefaultPack), &info) == 0 || info.dli_fname == nullptr ||
      !RealPath(info.dli_fname, &library, &error)) {
    return {};
  }
  return library.substr(0, library.rfind('/')) + "/../packs/default";
}

// Loads the packs of the environment and the default pack, the preferred last.
void LoadConfiguredPacks(Dispatcher* dispatcher) {
  std::vector<std::string> paths = config::Packs();
#if TF_TVM_OPS_HAS_DEFAULT_PACK
  paths.push_back(DefaultPack());
#endif
  for (auto path = paths.rbegin(); path != paths.rend(); ++path) {
    std::string error;
    if (!dispatcher->LoadPack(*path, nullptr, &error)) Log(Severity::kWarning, error);
  }
}

Dispatcher* MakeGlobal() {
  const std::string limit = config::CpuTarget();
  auto* dispatcher = new Dispatcher(limit);
  // Asked to use no image, so there is nothing to warn about.
  if (limit != "none") LoadConfiguredPacks(dispatcher);
  return dispatcher;
}

void WarnIfOfOtherGpus(const Pack& pack, const Lookup& lookup, ComputeCapability capability) {
  std::vector<std::string> others;
  for (const std::string& target : pack.info.targets) {
    if (IsCudaTarget(target)) others.push_back(target);
  }
  if (others.empty() || lookup.CanUse(pack)) return;
  const std::vector<std::string> wanted = CudaTargetsFor(capability);
  Log(Severity::kWarning,
      "the pack " + pack.info.path + " has no kernels for a GPU of compute capability " +
          capability.ToString() + ", only for " + Join(others, ", ") +
          (wanted.empty() ? std::string()
                          : "; make one with `tf-tvm-ops generate --target " + wanted[0] + "`"));
}

}  // namespace

struct Dispatcher::State {
  // The lookups of GPUs of one compute capability.
  struct Gpu {
    ComputeCapability capability;
    Lookup lookup;

    explicit Gpu(ComputeCapability which) : capability(which), lookup(CudaTargetsFor(which)) {}
  };

  explicit State(std::string cpu_target_limit)
      : limit(std::move(cpu_target_limit)), cpu(UsableCpuTargets(limit)) {}

  const std::string limit;
  Lookup cpu;
  std::mutex mutex;
  // All guarded by mutex, but not what a Lookup does.
  std::vector<const Pack*> packs;  // the preferred first
  std::map<std::pair<int, int>, std::unique_ptr<Gpu>> gpus;
};

Dispatcher::Dispatcher(std::string cpu_target_limit)
    : state_(std::make_unique<State>(std::move(cpu_target_limit))) {}

Dispatcher::~Dispatcher() = default;

Dispatcher& Dispatcher::Global() {
  static Dispatcher* const global = MakeGlobal();
  return *global;
}

bool Dispatcher::LoadPack(const std::string& path, PackInfo* info, std::string* error) {
  try {
    std::string reason;
    std::unique_ptr<const Pack> read = ReadPack(path, state_->limit, &reason);
    if (read == nullptr) {
      *error = "the pack '" + path + "' is not used: " + reason +
               "; expected a folder made by `tf-tvm-ops generate`";
      return false;
    }
    const Pack* pack = MakeImmortal(std::move(read));
    for (const std::string& warning : pack->warnings) Log(Severity::kWarning, warning);
    const std::lock_guard<std::mutex> lock(state_->mutex);
    std::vector<const Pack*> packs{pack};
    for (const Pack* other : state_->packs) {
      if (other->info.path != pack->info.path) packs.push_back(other);
    }
    state_->cpu.Use(packs);
    for (const auto& [key, gpu] : state_->gpus) {
      gpu->lookup.Use(packs);
      WarnIfOfOtherGpus(*pack, gpu->lookup, gpu->capability);
    }
    if (info != nullptr) *info = pack->info;
    state_->packs = std::move(packs);
    Log(Severity::kInfo, "pack " + pack->info.path + ": kernels for " +
                             std::to_string(pack->info.kernels) + " problems, for " +
                             Join(pack->info.targets, ", "));
    return true;
  } catch (const std::exception& e) {
    *error = "the pack '" + path + "' is not used: " + e.what();
    return false;
  }
}

const Lookup& Dispatcher::cpu() const { return state_->cpu; }

const Lookup& Dispatcher::gpu(ComputeCapability capability) const {
  const std::lock_guard<std::mutex> lock(state_->mutex);
  std::unique_ptr<State::Gpu>& gpu = state_->gpus[{capability.major, capability.minor}];
  if (gpu == nullptr) {
    auto made = std::make_unique<State::Gpu>(capability);
    made->lookup.Use(state_->packs);
    for (const Pack* pack : state_->packs) WarnIfOfOtherGpus(*pack, made->lookup, capability);
    gpu = std::move(made);
  }
  return gpu->lookup;
}

std::vector<PackInfo> Dispatcher::packs() const {
  const std::lock_guard<std::mutex> lock(state_->mutex);
  std::vector<PackInfo> packs;
  for (const Pack* pack : state_->packs) packs.push_back(pack->info);
  return packs;
}

}  // namespace tf_tvm_ops
