#include "graph_passes/control.h"

#include <atomic>
#include <string>

#include "cc/dispatch/config.h"

namespace tf_tvm_ops {
namespace {

RewriteMode OfEnvironment() {
  const std::string value = config::Rewrite();
  if (value == "off") return RewriteMode::kOff;
  if (value == "report") return RewriteMode::kReport;
  return RewriteMode::kOn;
}

std::atomic<RewriteMode>& Mode() {
  static std::atomic<RewriteMode> mode{OfEnvironment()};
  return mode;
}

}  // namespace

RewriteMode RewriteModeInForce() { return Mode().load(std::memory_order_relaxed); }
void SetRewriteMode(RewriteMode mode) { Mode().store(mode, std::memory_order_relaxed); }

}  // namespace tf_tvm_ops
