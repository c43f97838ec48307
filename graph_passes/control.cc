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

std::atomic<int> pauses{0};

}  // namespace

RewriteMode RewriteModeInForce() { return pauses.load() > 0 ? RewriteMode::kOff : Mode().load(); }
void SetRewriteMode(RewriteMode mode) { Mode().store(mode); }
void PauseRewriting() { ++pauses; }
void ResumeRewriting() { --pauses; }

}  // namespace tf_tvm_ops
