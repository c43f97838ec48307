// An image of a pack, opened when first needed, and its kernels.
#ifndef TF_TVM_OPS_CC_DISPATCH_IMAGE_H_
#define TF_TVM_OPS_CC_DISPATCH_IMAGE_H_

#include <tvm/ffi/c_api.h>

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>

#include "cc/dispatch/kernel.h"
#include "cc/dispatch/manifest.h"

namespace tf_tvm_ops {

class Image;

class PackKernel final : public Kernel {
 public:
  // The image must outlive the kernel.
  PackKernel(Image* image, KernelEntry entry);

  const Problem& problem() const override { return entry_.problem; }
  const std::string& symbol() const override { return entry_.symbol; }
  const std::string& target() const override;
  const std::string& pack() const override;
  const std::string& config() const override { return entry_.config; }
  const Duels& duels() const override { return entry_.duels; }
  const FallbackModel* model() const override { return entry_.model ? &*entry_.model : nullptr; }
  bool Ready() const override;
  bool FailedOn(int device) const override {
    return (failed_on_.load(std::memory_order_relaxed) & Bit(device)) != 0;
  }
  void Fail(int device, const std::string& error) const override;
  std::string Call(const KernelArgs& args) const override;

  // Whether it is known to be of no use on a device: its image or the kernel itself failed.
  bool failed(int device) const;

 private:
  friend class Image;

  static uint32_t Bit(int device) {
    return uint32_t{1} << (static_cast<unsigned>(device) % kMaxDevices);
  }

  Image* const image_;
  const KernelEntry entry_;
  // Written once, before the image is said to be open.
  TVMFFISafeCallType safe_call_ = nullptr;
  void* function_ = nullptr;
  mutable std::atomic<uint32_t> failed_on_{0};  // a bit for each device
};

class Image {
 public:
  // `pack`: the real path of the folder.
  Image(std::string pack, ImageEntry entry);
  ~Image();
  Image(const Image&) = delete;
  Image& operator=(const Image&) = delete;

  const std::string& target() const { return target_; }
  const std::string& pack() const { return pack_; }
  const std::deque<PackKernel>& kernels() const { return kernels_; }

  // Opens the image on the first call: size, checksum, dlopen, every symbol. If any of it fails,
  // none of its kernels is used, and one warning says why. One atomic load afterwards.
  bool Ready() {
    const State state = state_.load(std::memory_order_acquire);
    return state == State::kClosed ? OpenOnce() : state == State::kOpen;
  }
  bool failed() const { return state_.load(std::memory_order_acquire) == State::kFailed; }

 private:
  enum class State : uint8_t { kClosed, kOpen, kFailed };
  struct Loaded;

  bool OpenOnce();
  // Empty, or what went wrong.
  std::string Open();
  std::string Verify(const std::string& path) const;

  const std::string pack_;
  const std::string target_;
  const std::string file_;
  const int64_t bytes_;
  const std::string sha256_;
  std::deque<PackKernel> kernels_;
  std::unique_ptr<Loaded> loaded_;
  std::once_flag once_;
  std::atomic<State> state_{State::kClosed};
};

}  // namespace tf_tvm_ops

#endif  // TF_TVM_OPS_CC_DISPATCH_IMAGE_H_
