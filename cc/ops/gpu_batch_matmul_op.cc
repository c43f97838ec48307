// TvmBatchMatMul, TvmBatchMatMulAdd and TvmBatchMatMulTranspose on GPUs.
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "cc/dispatch/cuda_launch.h"
#include "cc/ops/batch_matmul_base.h"
#include "cc/ops/gpu_description.h"
#include "cc/ops/gpu_stock.h"
#include "cc/ops/registrations.h"
#include "tensorflow/core/framework/device_base.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "xla/stream_executor/stream.h"

namespace tf_tvm_ops {
namespace {

using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;

// Nothing here waits for the GPU or touches its memory: what is enqueued on TensorFlow's stream
// runs in its order, and so does what uses the memory of temporary tensors after this op.
class GpuBatchMatMulOp final : public BatchMatMulBase {
 public:
  explicit GpuBatchMatMulOp(OpKernelConstruction* ctx) : BatchMatMulBase(ctx) {
    if (!ctx->status().ok()) return;
    device_ = DescribeGpu(ctx->device()->attributes()).device;
    const absl::Status status =
        Guarded([this, ctx] { return GpuStock::Make(ctx, attrs_, &stock_); });
    OP_REQUIRES_OK(ctx, status);
  }

 protected:
  absl::Status Serve(OpKernelContext* ctx, const MatMulShapes& shapes,
                     Choice* choice) const override {
    const bool kernel = choice->server == Server::kKernel;
    if (shapes.output.num_elements() == 0 || (kernel && !shapes.enlarged)) {
      Tensor* output = nullptr;
      absl::Status status = ctx->allocate_output(0, shapes.output, &output);
      return status.ok() && kernel ? Launch(ctx, shapes, choice, output) : status;
    }
    Tensor product, output;
    absl::Status status;
    if (kernel) {
      status = ctx->allocate_temp(attrs_.dtype, shapes.product_shape, &product);
      if (status.ok()) status = Launch(ctx, shapes, choice, &product);
    } else {
      status = stock_->Multiply(ctx, &product);
    }
    if (status.ok()) status = stock_->Finish(ctx, std::move(product), &output);
    if (status.ok()) ctx->set_output(0, output);
    return status;
  }

 private:
  absl::Status Launch(OpKernelContext* ctx, const MatMulShapes& shapes, Choice* choice,
                      Tensor* out) const {
    const auto* context = ctx->op_device_context();
    if (context == nullptr || context->stream() == nullptr) {
      return absl::InternalError("tf_tvm_ops: the device has no stream");
    }
    const CudaStream where{device_, context->stream()->platform_specific_handle().stream};
    const void* addend = shapes.product.has_addend ? Data(ctx->input(2)) : nullptr;
    choice->plan.Bind(Data(ctx->input(0)), Data(ctx->input(1)), addend, out->data());
    LaunchResult result = LaunchOnGpu(choice->plan, *choice->kernel, where);
    if (result.error.empty()) return absl::OkStatus();
    if (result.refused) return Failed(std::move(result.error), choice);
    return absl::InternalError(
        absl::StrCat("kernel ", choice->kernel->symbol(), " failed: ", result.error));
  }

  int device_ = -1;
  std::unique_ptr<GpuStock> stock_;
};

}  // namespace

void RegisterGpuKernels() { TF_TVM_OPS_REGISTER_FAMILY(tensorflow::DEVICE_GPU, GpuBatchMatMulOp); }

}  // namespace tf_tvm_ops
