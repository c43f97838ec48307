#include "cc/dispatch/log.h"

#include <algorithm>
#include <cstdio>
#include <string>

#include "cc/dispatch/config.h"

namespace tf_tvm_ops {
namespace {

constexpr char kLost[] = "tf_tvm_ops: error: a message was lost, out of memory\n";

const char* Label(Severity severity) {
  switch (severity) {
    case Severity::kError:
      return "error";
    case Severity::kWarning:
      return "warning";
    case Severity::kInfo:
      return "info";
  }
  return "message";
}

// A single fwrite, so that lines of several threads do not mix.
void Write(std::string_view label, std::string_view message) {
  std::string line = "tf_tvm_ops: ";
  line.append(label).append(message);
  std::replace(line.begin(), line.end(), '\n', ' ');
  line.push_back('\n');
  std::fwrite(line.data(), 1, line.size(), stderr);
}

void Write(Severity severity, std::string_view message) {
  Write(std::string(Label(severity)) + ": ", message);
}

Severity ReadLevel() {
  std::string warning;
  const std::string level = config::LogLevel(&warning);
  if (!warning.empty()) Write(Severity::kWarning, warning);
  if (level == Label(Severity::kError)) return Severity::kError;
  if (level == Label(Severity::kInfo)) return Severity::kInfo;
  return Severity::kWarning;
}

}  // namespace

void Log(Severity severity, std::string_view message) noexcept {
  try {
    static const Severity level = ReadLevel();
    if (severity <= level) Write(severity, message);
  } catch (...) {  // out of memory: there is nobody left to tell
    std::fputs(kLost, stderr);
  }
}

void Print(std::string_view message) noexcept {
  try {
    Write("", message);
  } catch (...) {
    std::fputs(kLost, stderr);
  }
}

}  // namespace tf_tvm_ops
