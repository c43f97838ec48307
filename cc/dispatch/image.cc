#include "cc/dispatch/image.h"

#include <dlfcn.h>
#include <tvm/ffi/error.h>
#include <tvm/ffi/extra/module.h>
#include <tvm/ffi/function.h>

#include <array>
#include <exception>
#include <utility>
#include <vector>

#include "cc/dispatch/cpu_features.h"
#include "cc/dispatch/cuda_runtime.h"
#include "cc/dispatch/cuda_targets.h"
#include "cc/dispatch/file.h"
#include "cc/dispatch/log.h"
#include "cc/dispatch/workspace.h"

namespace tf_tvm_ops {
namespace {

// Images name functions of libtvm_ffi without naming the library. Whoever loaded us may have done
// so privately, as Python does with extension modules, and then they would not be found: the
// process would end at the first error a kernel reports.
void PublishTvmFfi() {
  Dl_info info{};
  if (dladdr(reinterpret_cast<void*>(&TVMFFIErrorSetRaisedFromCStrParts), &info) == 0 ||
      info.dli_fname == nullptr ||
      dlopen(info.dli_fname, RTLD_NOLOAD | RTLD_LAZY | RTLD_GLOBAL) == nullptr) {
    Log(Severity::kWarning,
        "the symbols of libtvm_ffi could not be made public; a kernel that reports an error will "
        "end the process. Import tvm_ffi before tf_tvm_ops");
  }
}

// The text of the error that the last call of this thread raised.
std::string TakeRaisedError() {
  TVMFFIObjectHandle error = nullptr;
  TVMFFIErrorMoveFromRaised(&error);
  if (error == nullptr) return "it failed without saying why";
  const TVMFFIErrorCell* cell = TVMFFIErrorGetCellPtr(error);
  std::string text(cell->kind.data, cell->kind.size);
  text.append(": ").append(cell->message.data, cell->message.size);
  TVMFFIObjectDecRef(error);
  return text;
}

TVMFFIAny Pointer(const void* pointer) {
  TVMFFIAny any{};
  any.type_index = kTVMFFIOpaquePtr;
  any.v_ptr = const_cast<void*>(pointer);
  return any;
}

TVMFFIAny Real(double real) {
  TVMFFIAny any{};
  any.type_index = kTVMFFIFloat;
  any.v_float64 = real;
  return any;
}

TVMFFIAny Integer(int64_t integer) {
  TVMFFIAny any{};
  any.type_index = kTVMFFIInt;
  any.v_int64 = integer;
  return any;
}

}  // namespace

PackKernel::PackKernel(Image* image, KernelEntry entry) : image_(image), entry_(std::move(entry)) {}

const std::string& PackKernel::target() const { return image_->target(); }
const std::string& PackKernel::pack() const { return image_->pack(); }
bool PackKernel::Ready() const { return image_->Ready(); }
bool PackKernel::failed(int device) const { return image_->failed() || FailedOn(device); }

void PackKernel::Fail(int device, const std::string& error) const {
  if ((failed_on_.fetch_or(Bit(device)) & Bit(device)) != 0) return;
  const std::string place = IsCudaTarget(target()) ? "on GPU " + std::to_string(device) + " " : "";
  // TVM's runtime ends some messages with the source of the kernel.
  constexpr size_t kMaxShown = 500;
  Log(Severity::kWarning, "kernel " + symbol() + " (" + target() + ") of the pack " + pack() +
                              " failed " + place + "and is not called " + place +
                              "any more; what is next in line, in the end TensorFlow's own, "
                              "serves instead: " +
                              error.substr(0, kMaxShown));
}

std::string PackKernel::Call(const KernelArgs& args) const {
  try {
    if (!Ready()) return "kernel " + entry_.symbol + ": its image could not be loaded";
    void* workspace = ThreadWorkspace(entry_.workspace_bytes);
    if (workspace == nullptr && entry_.workspace_bytes > 0) {
      return "kernel " + entry_.symbol + ": no memory for its workspace of " +
             std::to_string(entry_.workspace_bytes) + " bytes";
    }
    const std::array<TVMFFIAny, 25> values{Pointer(args.lhs),
                                           Pointer(args.rhs),
                                           Pointer(args.addend),
                                           Pointer(args.out),
                                           Pointer(workspace),
                                           Integer(args.begin),
                                           Integer(args.end),
                                           Integer(args.heads),
                                           Integer(args.lhs_batch_stride),
                                           Integer(args.lhs_head_stride),
                                           Integer(args.lhs_stride),
                                           Integer(args.rhs_batch_stride),
                                           Integer(args.rhs_head_stride),
                                           Integer(args.rhs_stride),
                                           Integer(args.addend_batch_stride),
                                           Integer(args.addend_head_stride),
                                           Integer(args.addend_stride),
                                           Integer(static_cast<int64_t>(args.addend_kind)),
                                           Integer(args.out_batch_stride),
                                           Integer(args.out_head_stride),
                                           Integer(args.out_stride),
                                           Real(args.scale),
                                           Integer(args.m),
                                           Integer(args.n),
                                           Integer(args.k)};
    constexpr int32_t kFixedCount = 22;  // without m, n and k
    const auto count =
        entry_.problem.is_generic() ? static_cast<int32_t>(values.size()) : kFixedCount;
    TVMFFIAny result{};
    if (safe_call_(function_, values.data(), count, &result) == 0) return {};
    return "kernel " + entry_.symbol + ": " + TakeRaisedError();
  } catch (const std::exception& e) {
    return e.what();
  }
}

// Never destroyed: see immortal.h.
struct Image::Loaded {
  tvm::ffi::Module module;
  std::vector<tvm::ffi::Function> functions;
};

Image::Image(std::string pack, ImageEntry entry)
    : pack_(std::move(pack)),
      target_(std::move(entry.target)),
      file_(std::move(entry.file)),
      bytes_(entry.bytes),
      sha256_(std::move(entry.sha256)) {
  for (KernelEntry& kernel : entry.kernels) kernels_.emplace_back(this, std::move(kernel));
}

Image::~Image() = default;

bool Image::OpenOnce() {
  std::call_once(once_, [this] {
    if (IsCudaTarget(target_) && OpenCudaRuntime() == nullptr) {
      // It said why, once for all images.
      state_.store(State::kFailed, std::memory_order_release);
      return;
    }
    const char* advice = "Make the pack again, or remove it";
    std::string error = PrepareCpuTarget(target_);
    try {
      if (error.empty()) {
        error = Open();
      } else {
        advice = "The next target that has the kernel serves instead";
      }
    } catch (const tvm::ffi::Error& e) {
      error = e.message();
    } catch (const std::exception& e) {
      error = e.what();
    }
    if (!error.empty()) {
      Log(Severity::kWarning, "image " + pack_ + "/" + file_ + " (" + target_ +
                                  ") is not used: " + error + ". " + advice);
    }
    state_.store(error.empty() ? State::kOpen : State::kFailed, std::memory_order_release);
  });
  return state_.load(std::memory_order_acquire) == State::kOpen;
}

std::string Image::Verify(const std::string& path) const {
  std::string error;
  int64_t bytes = 0;
  if (!FileBytes(path, &bytes, &error)) return error;
  if (bytes != bytes_) {
    return "it has " + std::to_string(bytes) + " bytes, the manifest says " +
           std::to_string(bytes_);
  }
  std::string sha256;
  if (!HashFile(path, &sha256, &error)) return error;
  if (sha256 != sha256_) return "its SHA-256 is " + sha256 + ", the manifest says " + sha256_;
  return {};
}

std::string Image::Open() {
  static const bool published = (PublishTvmFfi(), true);
  static_cast<void>(published);
  // Absolute, since a name without a slash would be looked up in the loader's path.
  const std::string path = pack_ + "/" + file_;
  std::string error = Verify(path);
  if (!error.empty()) return error;
  auto loaded = std::make_unique<Loaded>(Loaded{tvm::ffi::Module::LoadFromFile(path), {}});
  loaded->functions.reserve(kernels_.size());
  for (PackKernel& kernel : kernels_) {
    tvm::ffi::Optional<tvm::ffi::Function> function = loaded->module->GetFunction(kernel.symbol());
    if (!function.has_value()) return "it has no kernel " + kernel.symbol();
    loaded->functions.push_back(*function);
    // The C interface of a function: it reports errors by its return value.
    tvm::ffi::FunctionObj* object =
        const_cast<tvm::ffi::FunctionObj*>(loaded->functions.back().get());
    kernel.function_ = static_cast<tvm::ffi::Object*>(object);
    kernel.safe_call_ = object->safe_call;
  }
  loaded_ = std::move(loaded);
  return {};
}

}  // namespace tf_tvm_ops
