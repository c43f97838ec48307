// Stock kernels for the fake GPUs, which a TensorFlow without CUDA does not have: those of its CPU,
// since the memory is the host's. And what tests need to know and set of a device.
#include <cstring>
#include <memory>
#include <mutex>
#include <string>

#include "absl/strings/str_cat.h"
#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/tensor.h"
#include "tensorflow/core/platform/tstring.h"
#include "tensorflow/core/public/version.h"

namespace {

using tensorflow::DEVICE_GPU;
using tensorflow::OpKernel;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;

std::mutex mutex;
std::string ran;  // names of ops, in order, with spaces between

// The kernel for CPUs of the same op.
class FakeStock final : public OpKernel {
 public:
  explicit FakeStock(OpKernelConstruction* ctx) : OpKernel(ctx) {
    auto* device = static_cast<tensorflow::DeviceBase*>(ctx->device());
    absl::Status status;
    kernel_ = tensorflow::CreateOpKernel(tensorflow::DeviceType(tensorflow::DEVICE_CPU), device,
                                         device->GetAllocator({}), ctx->def(), TF_GRAPH_DEF_VERSION,
                                         &status);
    OP_REQUIRES_OK(ctx, status);
  }

  void Compute(OpKernelContext* ctx) override {
    {
      const std::lock_guard<std::mutex> lock(mutex);
      absl::StrAppend(&ran, ran.empty() ? "" : " ", def().op());
    }
    kernel_->Compute(ctx);
  }

 private:
  std::unique_ptr<OpKernel> kernel_;
};

REGISTER_KERNEL_BUILDER(Name("BatchMatMulV2").Device(DEVICE_GPU), FakeStock);
REGISTER_KERNEL_BUILDER(Name("Transpose").Device(DEVICE_GPU).HostMemory("perm"), FakeStock);
REGISTER_KERNEL_BUILDER(Name("Mul").Device(DEVICE_GPU).Priority(1), FakeStock);
REGISTER_KERNEL_BUILDER(Name("AddV2").Device(DEVICE_GPU).Priority(1), FakeStock);

// Gives the fake GPU it runs on the description that a real one has.
REGISTER_OP("FakeGpuDescribe").Attr("description: string").SetIsStateful();

class FakeGpuDescribe final : public OpKernel {
 public:
  explicit FakeGpuDescribe(OpKernelConstruction* ctx) : OpKernel(ctx) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("description", &description_));
  }

  void Compute(OpKernelContext* ctx) override {
    // The interface for pluggable devices has no word for the compute capability.
    const_cast<tensorflow::DeviceAttributes&>(ctx->device()->attributes())
        .set_physical_device_desc(description_);
  }

 private:
  std::string description_;
};

REGISTER_KERNEL_BUILDER(Name("FakeGpuDescribe").Device(DEVICE_GPU), FakeGpuDescribe);

// The same elements, one element off the alignment of TensorFlow's own buffers.
REGISTER_OP("FakeGpuMisalign")
    .Input("x: T")
    .Output("y: T")
    .Attr("T: type")
    .SetShapeFn(tensorflow::shape_inference::UnchangedShape);

class FakeGpuMisalign final : public OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(OpKernelContext* ctx) override {
    const tensorflow::Tensor& x = ctx->input(0);
    const int64_t size = x.NumElements();
    tensorflow::Tensor room, y;
    OP_REQUIRES_OK(ctx, ctx->allocate_temp(x.dtype(), {size + 1}, &room));
    const auto bytes = x.tensor_data();
    char* to = static_cast<char*>(room.data()) + bytes.size() / size;
    std::memcpy(to, bytes.data(), bytes.size());
    OP_REQUIRES(ctx, y.CopyFrom(room.Slice(1, size + 1), x.shape()),
                absl::InternalError("not reshaped"));
    ctx->set_output(0, y);
  }
};

REGISTER_KERNEL_BUILDER(Name("FakeGpuMisalign").Device(DEVICE_GPU), FakeGpuMisalign);

}  // namespace

// What stock kernels ran since the last call, in order. Valid until the next one.
extern "C" __attribute__((visibility("default"))) const char* fake_stock_ran() {
  static std::string last;
  const std::lock_guard<std::mutex> lock(mutex);
  last.swap(ran);
  ran.clear();
  return last.c_str();
}
