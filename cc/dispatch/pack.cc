#include "cc/dispatch/pack.h"

#include <algorithm>
#include <unordered_set>
#include <utility>

#include "cc/dispatch/cpu_features.h"
#include "cc/dispatch/cuda_runtime.h"
#include "cc/dispatch/cuda_targets.h"
#include "cc/dispatch/file.h"
#include "cc/dispatch/manifest.h"

namespace tf_tvm_ops {
namespace {

constexpr int64_t kMaxManifestBytes = int64_t{64} << 20;

bool Contains(const std::vector<std::string>& texts, const std::string& text) {
  return std::find(texts.begin(), texts.end(), text) != texts.end();
}

// Why a target is not among those usable.
std::string WhyUnusable(const std::string& target, const std::string& cpu_target_limit) {
  std::vector<std::string> known = KnownCpuTargets();
  for (std::string& each : KnownCudaTargets()) known.push_back(std::move(each));
  if (!Contains(known, target)) {
    return "this version of tf_tvm_ops knows only " + Join(known, ", ");
  }
  if (IsCudaTarget(target)) return "this machine has no NVIDIA driver (libcuda.so.1)";
  if (!Contains(SupportedCpuTargets(), target)) {
    return "this CPU, or its operating system, cannot run it";
  }
  return "the CPU target is limited to " + cpu_target_limit;
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

// Those of CPUs, then those of GPUs if the manifest has one and there is a driver.
std::vector<std::string> UsableTargets(const Manifest& manifest,
                                       const std::string& cpu_target_limit) {
  std::vector<std::string> usable = UsableCpuTargets(cpu_target_limit);
  const std::vector<std::string> cuda = KnownCudaTargets();
  const bool wanted =
      std::any_of(manifest.images.begin(), manifest.images.end(),
                  [&](const ImageEntry& image) { return Contains(cuda, image.target); });
  if (wanted && HasCudaDriver()) usable.insert(usable.end(), cuda.begin(), cuda.end());
  return usable;
}

}  // namespace

std::vector<std::string> UsableCpuTargets(const std::string& limit) {
  const std::vector<std::string> known = KnownCpuTargets();
  const auto best = limit.empty() ? known.begin() : std::find(known.begin(), known.end(), limit);
  const std::vector<std::string> allowed(best, known.end());
  std::vector<std::string> usable;
  for (const std::string& target : SupportedCpuTargets()) {
    if (Contains(allowed, target)) usable.push_back(target);
  }
  return usable;
}

std::unique_ptr<Pack> ReadPack(const std::string& path, const std::string& cpu_target_limit,
                               std::string* error) {
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
  const std::vector<std::string> usable = UsableTargets(manifest, cpu_target_limit);
  for (const ImageEntry& image : manifest.images) {
    if (!Contains(usable, image.target)) {
      pack->info.ignored.push_back(image.target + ": " +
                                   WhyUnusable(image.target, cpu_target_limit));
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

std::string Join(const std::vector<std::string>& parts, const char* separator) {
  std::string text;
  for (const std::string& part : parts) text += (text.empty() ? "" : separator) + part;
  return text;
}

}  // namespace tf_tvm_ops
