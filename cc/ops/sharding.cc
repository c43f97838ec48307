#include "cc/ops/sharding.h"

#include <algorithm>
#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "absl/synchronization/notification.h"
#include "tensorflow/core/platform/threadpool.h"

namespace tf_tvm_ops {
namespace {

// A small matrix keeps a core at about 20 multiply-adds per cycle of the 32 that two 16-wide units
// could do, and reads operands from the second-level cache. Vectors hold half as many float64.
constexpr int64_t kMultiplyAddsPerCycle = 20;
constexpr int64_t kMultiplyAddsPerCycleFloat64 = 10;
constexpr int64_t kBytesPerCycle = 40;
constexpr int64_t kOverheadCycles = 20;

// Work worth another thread: to wake one takes 5 to 10 microseconds.
constexpr int64_t kCyclesPerThread = 40000;

// Chunks to a thread: those that a thread which comes late leaves over are taken by the others.
constexpr int64_t kChunksPerThread = 4;

// The parts of some work, handed out in chunks to whoever asks. Outlives the op when a thread of
// the pool comes so late that nothing is left for it; it then touches nothing else.
class Work {
 public:
  Work(const RangeFunction& function, int64_t size, int64_t chunks)
      : function_(function), size_(size), chunks_(chunks), unfinished_(chunks) {}

  void TakeUntilNoneIsLeft() {
    for (int64_t chunk; (chunk = next_.fetch_add(1, std::memory_order_relaxed)) < chunks_;) {
      std::string failure = function_(Begin(chunk), Begin(chunk + 1));
      if (!failure.empty()) {
        const std::lock_guard<std::mutex> lock(mutex_);
        if (error_.empty()) error_ = std::move(failure);
      }
      if (unfinished_.fetch_sub(1, std::memory_order_acq_rel) == 1) finished_.Notify();
    }
  }

  // The first error, empty if there is none.
  std::string Wait() {
    finished_.WaitForNotification();
    const std::lock_guard<std::mutex> lock(mutex_);
    return error_;
  }

 private:
  int64_t Begin(int64_t chunk) const {
    return size_ / chunks_ * chunk + std::min(chunk, size_ % chunks_);
  }

  const RangeFunction& function_;  // gone when the last chunk is done
  const int64_t size_;
  const int64_t chunks_;
  std::atomic<int64_t> next_{0};
  std::atomic<int64_t> unfinished_;
  absl::Notification finished_;
  std::mutex mutex_;
  std::string error_;  // guarded by mutex_
};

}  // namespace

int64_t CyclesPerMatrix(const Product& product) {
  const int64_t m = product.m, n = product.n, k = product.k;
  const int64_t bytes = ElementBytes(product.dtype) * (m * k + k * n + m * n);
  const int64_t multiply_adds =
      product.dtype == DType::kFloat64 ? kMultiplyAddsPerCycleFloat64 : kMultiplyAddsPerCycle;
  return kOverheadCycles + m * n * k / multiply_adds + bytes / kBytesPerCycle;
}

// TensorFlow's own ParallelFor was measured to leave a second core idle for most of an op of 800
// microseconds, with this pattern it is busy throughout.
std::string ShareOut(tensorflow::OpKernelContext* ctx, int64_t size, int64_t cycles_per_unit,
                     const RangeFunction& function) {
  const auto* workers = ctx->device()->tensorflow_cpu_worker_threads();
  const int64_t worthwhile = size * cycles_per_unit / kCyclesPerThread;
  const int64_t threads = std::min<int64_t>({workers->num_threads, size, worthwhile});
  if (threads <= 1) return function(0, size);
  const auto work =
      std::make_shared<Work>(function, size, std::min(size, threads * kChunksPerThread));
  for (int64_t i = 1; i < threads; ++i) {
    workers->workers->Schedule([work] { work->TakeUntilNoneIsLeft(); });
  }
  work->TakeUntilNoneIsLeft();
  return work->Wait();
}

std::string RunSharded(tensorflow::OpKernelContext* ctx, const Plan& plan, const Kernel& kernel,
                       int64_t cycles_per_matrix) {
  return ShareOut(ctx, plan.size(), cycles_per_matrix,
                  [&](int64_t begin, int64_t end) { return plan.Run(kernel, begin, end); });
}

}  // namespace tf_tvm_ops
