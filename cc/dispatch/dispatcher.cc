#include "cc/dispatch/dispatcher.h"

#include <dlfcn.h>

#include <algorithm>
#include <exception>
#include <mutex>
#include <unordered_set>
#include <utility>

#include "cc/dispatch/config.h"
#include "cc/dispatch/file.h"
#include "cc/dispatch/image.h"
#include "cc/dispatch/immortal.h"
#include "cc/dispatch/kernel_table.h"
#include "cc/dispatch/log.h"
#include "cc/dispatch/manifest.h"

namespace tf_tvm_ops {
namespace {

constexpr int64_t kMaxManifestBytes = int64_t{64} << 20;

// A pack in use. Immortal, as its images are.
struct Pack {
  PackInfo info;
  std::vector<std::unique_ptr<Image>> images;  // the best target first
  std::vector<std::string> warnings;           // of a pack that is used all the same
};

std::vector<std::string> UsableTargets(const std::string& limit) {
  const std::vector<std::string> known = KnownCpuTargets();
  const auto best = limit.empty() ? known.begin() : std::find(known.begin(), known.end(), limit);
  const std::vector<std::string> allowed(best, known.end());
  std::vector<std::string> usable;
  for (const std::string& target : SupportedCpuTargets()) {
    if (std::find(allowed.begin(), allowed.end(), target) != allowed.end()) {
      usable.push_back(target);
    }
  }
  return usable;
}

std::string Join(const std::vector<std::string>& parts, const char* separator) {
  std::string text;
  for (const std::string& part : parts) text += (text.empty() ? "" : separator) + part;
  return text;
}

// Why a target is not among those usable.
std::string WhyUnusable(const std::string& target, const std::string& limit) {
  const std::vector<std::string> known = KnownCpuTargets();
  const std::vector<std::string> supported = SupportedCpuTargets();
  if (std::find(known.begin(), known.end(), target) == known.end()) {
    return "this version of tf_tvm_ops knows only " + Join(known, ", ");
  }
  if (std::find(supported.begin(), supported.end(), target) == supported.end()) {
    return "this CPU, or its operating system, cannot run it";
  }
  return "the CPU target is limited to " + limit;
}

// Why the image is certain to fail, as far as can be seen without reading it.
std::string WhyUnreadable(const std::string& folder, const ImageEntry& image) {
  std::string error;
  int64_t bytes = 0;
  if (!FileBytes(folder + "/" + image.file, &bytes, &error)) return image.file + ": " + error;
  if (bytes == image.bytes) return {};
  return image.file + " has " + std::to_string(bytes) + " bytes, the manifest says " +
         std::to_string(image.bytes);
}

// Reads a pack; throws nothing but std::bad_alloc. Null with the reason in *error.
std::unique_ptr<Pack> ReadPack(const std::string& path, const std::vector<std::string>& usable,
                               const std::string& limit, std::string* error) {
  auto pack = std::make_unique<Pack>();
  if (!RealPath(path, &pack->info.path, error)) return nullptr;
  const std::string& folder = pack->info.path;
  std::string text;
  Manifest manifest;
  if (!ReadFile(folder + "/manifest.json", kMaxManifestBytes, &text, error) ||
      !ParseManifest(text, &manifest, error)) {
    *error = "manifest.json: " + *error;
    return nullptr;
  }
  for (const ImageEntry& image : manifest.images) {
    if (std::find(usable.begin(), usable.end(), image.target) == usable.end()) {
      pack->info.ignored.push_back(image.target + ": " + WhyUnusable(image.target, limit));
    }
  }
  std::unordered_set<Problem, ProblemHash> problems;
  for (const std::string& target : usable) {
    for (ImageEntry& image : manifest.images) {
      if (image.target != target) continue;
      const std::string unreadable = WhyUnreadable(folder, image);
      if (!unreadable.empty()) {
        pack->info.ignored.push_back(target + ": " + unreadable);
        pack->warnings.push_back("an image of the pack " + folder + " (" + target +
                                 ") is not used: " + unreadable +
                                 ". Make the pack again, or remove it");
        continue;
      }
      for (const KernelEntry& kernel : image.kernels) problems.insert(kernel.problem);
      pack->images.push_back(std::make_unique<Image>(folder, std::move(image)));
      if (pack->info.targets.empty() || pack->info.targets.back() != target) {
        pack->info.targets.push_back(target);
      }
    }
  }
  pack->info.kernels = static_cast<int64_t>(problems.size());
  if (problems.empty()) {
    *error = "none of its images holds a kernel for this machine (" +
             (pack->info.ignored.empty() ? "it has no kernels" : Join(pack->info.ignored, "; ")) +
             ")";
    return nullptr;
  }
  return pack;
}

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

}  // namespace

struct Dispatcher::State {
  std::string limit;
  std::vector<std::string> usable;  // targets, best first
  std::mutex mutex;
  std::vector<const Pack*> packs;  // the preferred first; guarded by mutex
};

Dispatcher::Dispatcher(std::string cpu_target_limit)
    : state_(std::make_unique<State>()),
      table_(MakeImmortal(std::make_unique<const KernelTable>(std::vector<const PackKernel*>()))) {
  state_->usable = UsableTargets(cpu_target_limit);
  state_->limit = std::move(cpu_target_limit);
}

Dispatcher::~Dispatcher() = default;

Dispatcher& Dispatcher::Global() {
  static Dispatcher* const global = MakeGlobal();
  return *global;
}

bool Dispatcher::LoadPack(const std::string& path, PackInfo* info, std::string* error) {
  try {
    std::string reason;
    std::unique_ptr<const Pack> read = ReadPack(path, state_->usable, state_->limit, &reason);
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
    std::vector<const PackKernel*> kernels;
    for (const Pack* each : packs) {
      for (const std::unique_ptr<Image>& image : each->images) {
        for (const PackKernel& kernel : image->kernels()) kernels.push_back(&kernel);
      }
    }
    const KernelTable* table = MakeImmortal(std::make_unique<const KernelTable>(kernels));
    if (info != nullptr) *info = pack->info;
    state_->packs = std::move(packs);
    table_.store(table, std::memory_order_release);
    Log(Severity::kInfo, "pack " + pack->info.path + ": kernels for " +
                             std::to_string(pack->info.kernels) + " problems, for " +
                             Join(pack->info.targets, ", "));
    return true;
  } catch (const std::exception& e) {
    *error = "the pack '" + path + "' is not used: " + e.what();
    return false;
  }
}

const Kernel* Dispatcher::Find(const Problem& problem) const {
  const KernelTable::Candidates candidates = table_.load(std::memory_order_acquire)->Find(problem);
  for (const PackKernel* kernel : candidates) {
    if (!kernel->failed()) return kernel;
  }
  // All failed: the first says so when asked.
  return candidates.first == candidates.last ? nullptr : *candidates.first;
}

const Kernel* Dispatcher::FindReady(const Problem& problem, Refusal* refusal) const {
  const KernelTable::Candidates candidates = table_.load(std::memory_order_acquire)->Find(problem);
  for (const PackKernel* kernel : candidates) {
    if (kernel->Ready()) return kernel;
  }
  *refusal = candidates.first == candidates.last ? Refusal::kNoKernel : Refusal::kImage;
  return nullptr;
}

std::vector<PackInfo> Dispatcher::packs() const {
  const std::lock_guard<std::mutex> lock(state_->mutex);
  std::vector<PackInfo> packs;
  for (const Pack* pack : state_->packs) packs.push_back(pack->info);
  return packs;
}

}  // namespace tf_tvm_ops
