#include "cc/dispatch/config.h"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdlib>

#include "cc/dispatch/log.h"
#include "config_env.h"

namespace tf_tvm_ops::config {
namespace {

// The value in force, and what is wrong with the one that was set.
template <typename Choices>
std::string Read(const char* name, const char* default_value, const Choices& choices,
                 std::string* warning) {
  const char* set = std::getenv(name);
  if (set == nullptr || *set == '\0') return default_value;
  std::string value = set;
  if (choices.empty() || std::find(choices.begin(), choices.end(), value) != choices.end()) {
    return value;
  }
  std::string expected;
  for (const auto choice : choices) {
    if (!choice.empty()) expected += (expected.empty() ? "" : ", ") + std::string(choice);
  }
  *warning = std::string(name) + "='" + value + "': expected one of " + expected +
             "; the default " + "'" + default_value + "' is used";
  return default_value;
}

template <typename Choices>
std::string ReadAndWarn(const char* name, const char* default_value, const Choices& choices,
                        std::atomic<bool>* warned) {
  std::string warning;
  std::string value = Read(name, default_value, choices, &warning);
  if (!warning.empty() && !warned->exchange(true)) Log(Severity::kWarning, warning);
  return value;
}

// A list with colons between.
template <typename Choices>
std::vector<std::string> Paths(const char* name, const char* default_value,
                               const Choices& choices) {
  std::string warning;
  const std::string value = Read(name, default_value, choices, &warning);
  std::vector<std::string> paths;
  for (size_t begin = 0; begin <= value.size();) {
    const size_t end = std::min(value.find(':', begin), value.size());
    if (end > begin) paths.push_back(value.substr(begin, end - begin));
    begin = end + 1;
  }
  return paths;
}

}  // namespace

std::string Fallback() {
  static std::atomic<bool> warned{false};
  return ReadAndWarn(kFallback, kFallbackDefault, kFallbackChoices, &warned);
}

std::string CpuTarget() {
  static std::atomic<bool> warned{false};
  return ReadAndWarn(kCpuTarget, kCpuTargetDefault, kCpuTargetChoices, &warned);
}

std::string Rewrite() {
  static std::atomic<bool> warned{false};
  return ReadAndWarn(kRewrite, kRewriteDefault, kRewriteChoices, &warned);
}

std::string LogLevel(std::string* warning) { return Read(kLog, kLogDefault, kLogChoices, warning); }

std::vector<std::string> Packs() { return Paths(kPacks, kPacksDefault, kPacksChoices); }

std::vector<std::string> CudaRuntime() {
  return Paths(kCudaRuntime, kCudaRuntimeDefault, kCudaRuntimeChoices);
}

const char* CudaRuntimeVariable() { return kCudaRuntime; }

}  // namespace tf_tvm_ops::config
