#include "cc/ops/sharding.h"

#include <mutex>
#include <string>

#include "absl/strings/str_cat.h"
#include "tensorflow/core/platform/threadpool.h"

namespace tf_tvm_ops {
namespace {

// What kernels reach for operands in cache, between AVX2 (up to 16) and AVX-512 (up to 32).
constexpr int64_t kMultiplyAddsPerCycle = 20;
constexpr int64_t kBytesPerCycle = 40;
constexpr int64_t kOverheadCycles = 20;

// What the shards of one call share; the lock is taken for an error only.
struct Shards {
  const Plan& plan;
  const Kernel& kernel;
  std::mutex mutex;
  std::string error;

  void Run(int64_t begin, int64_t end) {
    std::string failure = plan.Run(kernel, begin, end);
    if (failure.empty()) return;
    std::lock_guard<std::mutex> lock(mutex);
    if (error.empty()) error = std::move(failure);
  }
};

}  // namespace

int64_t CyclesPerMatrix(const Product& product) {
  const int64_t m = product.m, n = product.n, k = product.k;
  const int64_t bytes = 4 * (m * k + k * n + m * n);
  return kOverheadCycles + m * n * k / kMultiplyAddsPerCycle + bytes / kBytesPerCycle;
}

absl::Status RunSharded(tensorflow::OpKernelContext* ctx, const Plan& plan, const Kernel& kernel,
                        int64_t cycles_per_matrix) {
  Shards shards{plan, kernel, {}, {}};
  auto* workers = ctx->device()->tensorflow_cpu_worker_threads()->workers;
  const auto adaptive =
      tensorflow::thread::ThreadPool::SchedulingParams::Adaptive(cycles_per_matrix);
  workers->ParallelFor(plan.size(), adaptive,
                       [&shards](int64_t begin, int64_t end) { shards.Run(begin, end); });
  if (shards.error.empty()) return absl::OkStatus();
  return absl::InternalError(absl::StrCat("kernel ", kernel.symbol(), " failed: ", shards.error));
}

}  // namespace tf_tvm_ops
