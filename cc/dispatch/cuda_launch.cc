#include "cc/dispatch/cuda_launch.h"

#include <tvm/ffi/extra/c_env_api.h>

#include <exception>

#include "cc/dispatch/cuda_runtime.h"

namespace tf_tvm_ops {
namespace {

constexpr int kCuda = 2;  // kDLCUDA

// Whether the driver still does work on a stream, done or not. An error of earlier work, such as an
// illegal address, is met by whatever is called next, and by all that is called from then on.
bool IsUsable(const CudaApi& api, void* stream) {
  constexpr int kNotReady = 600;  // CUDA_ERROR_NOT_READY
  const int state = api.query_stream(stream);
  return state == 0 || state == kNotReady;
}

// Makes the primary context of a GPU that of the thread, as long as it lives.
class CurrentDevice {
 public:
  CurrentDevice(const CudaApi& api, int device) : api_(api) {
    int current = -1;
    Check(api_.context_of_thread(&before_));
    Check(api_.device_of_thread(&current));
    // Within an op the context is the right one already. Without one the number means nothing yet.
    if (!error_.empty() || (before_ != nullptr && current == device)) return;
    changed_ = true;
    Check(api_.set_device_of_thread(device));
  }
  ~CurrentDevice() {
    // By the driver's function: that of the runtime library would make a context for a thread that
    // had none. The runtime library's device of a thread is that of its context.
    if (changed_) api_.set_context_of_thread(before_);
  }
  CurrentDevice(const CurrentDevice&) = delete;
  CurrentDevice& operator=(const CurrentDevice&) = delete;

  const std::string& error() const { return error_; }

 private:
  void Check(int failure) {
    if (failure != 0 && error_.empty()) error_ = api_.error_text(failure);
  }

  const CudaApi& api_;
  void* before_ = nullptr;
  bool changed_ = false;
  std::string error_;
};

// Makes a stream the one that TVM's runtime launches on, for this thread and as long as it lives.
class CurrentStream {
 public:
  explicit CurrentStream(const CudaStream& where) : device_(where.device) {
    changed_ = TVMFFIEnvSetStream(kCuda, device_, where.stream, &before_) == 0;
  }
  ~CurrentStream() {
    if (changed_) TVMFFIEnvSetStream(kCuda, device_, before_, nullptr);
  }
  CurrentStream(const CurrentStream&) = delete;
  CurrentStream& operator=(const CurrentStream&) = delete;

  bool is_set() const { return changed_; }

 private:
  const int device_;
  TVMFFIStreamHandle before_ = nullptr;
  bool changed_ = false;
};

}  // namespace

LaunchResult LaunchOnGpu(const Plan& plan, const Kernel& kernel, const CudaStream& where) {
  try {
    if (where.device < 0 || where.device >= kMaxDevices) {
      return {"GPU " + std::to_string(where.device) + ": expected one of 0 to " +
              std::to_string(kMaxDevices - 1)};
    }
    // The plan would write the empty sums itself.
    if (plan.problem().k == 0) return {"a product of k = 0 is none for a kernel on a GPU"};
    const CudaApi* api = OpenCudaRuntime();
    if (api == nullptr) return {CudaRuntimeProblem()};
    const CurrentDevice device(*api, where.device);
    if (!device.error().empty()) return {device.error()};
    const CurrentStream stream(where);
    if (!stream.is_set()) return {"the stream was refused"};
    LaunchResult result{plan.Run(kernel, 0, plan.size())};
    result.refused = !result.error.empty() && IsUsable(*api, where.stream);
    return result;
  } catch (const std::exception& e) {
    return {e.what()};
  }
}

}  // namespace tf_tvm_ops
