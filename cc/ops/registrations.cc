#include "cc/ops/registrations.h"

#include <exception>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "cc/dispatch/log.h"
#include "graph_passes/control.h"
#include "graph_passes/hooks/hooks.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace tf_tvm_ops {
namespace {

// TensorFlow accepts a second set of kernels for an op when it is registered and fails when the
// op is next used, in both copies. So a copy of this library at another path registers nothing but
// an op that cannot be registered, which makes loading it fail with this text.
void RefuseSecondCopy() {
  tensorflow::OpRegistry::Global()->Register([](tensorflow::OpRegistrationData*) {
    return absl::FailedPreconditionError(
        "A copy of the tf_tvm_ops library is already loaded from another path; its ops are "
        "available, so use those: call tf_tvm_ops.load() everywhere, or load one path only.");
  });
}

bool RegisterOnce() noexcept {
  try {
    if (absl::StrContains(tensorflow::KernelsRegisteredForOp("TvmBatchMatMul"), "device=")) {
      RefuseSecondCopy();
      return false;
    }
    RegisterBatchMatMulOps();
    RegisterCpuKernels();
    RegisterGpuKernels();
    RegisterServedByKernels();
    RegisterAutomaticPasses();
    RegisterGrapplerOptimizer();
    const bool rewriting = RewriteModeInForce() != RewriteMode::kOff;
    Log(Severity::kInfo, rewriting ? "loaded; graphs are rewritten when they are set up"
                                   : "loaded; graphs are left as they are");
    return true;
  } catch (const std::exception& e) {
    Log(Severity::kError, e.what());
    return false;
  }
}

// The only initialiser that runs when the library is opened.
[[maybe_unused]] const bool registered = RegisterOnce();

}  // namespace
}  // namespace tf_tvm_ops
