#include "cc/ops/batch_matmul_base.h"

#include <utility>

namespace tf_tvm_ops {

using tensorflow::TensorShape;

BatchMatMulBase::BatchMatMulBase(tensorflow::OpKernelConstruction* ctx) : OpKernel(ctx) {
  const absl::Status status = Guarded([this, ctx] {
    fallback_ = FallbackInForce();
    // A CPU is not asked: what stands in for one, as in constant folding, may have no attributes,
    // and ends the process then.
    const bool is_gpu = ctx->device_type() == tensorflow::DEVICE_GPU;
    backend_ = is_gpu ? GpuBackend(ctx->device()->attributes()) : CpuBackend();
    return MatMulAttrs::Read(ctx, &attrs_);
  });
  OP_REQUIRES_OK(ctx, status);
}

void BatchMatMulBase::Compute(tensorflow::OpKernelContext* ctx) {
  const absl::Status status = Guarded([this, ctx] {
    MatMulShapes shapes;
    const TensorShape* addend = ctx->num_inputs() == 3 ? &ctx->input(2).shape() : nullptr;
    absl::Status resolved =
        ResolveMatMulShapes(attrs_, ctx->input(0).shape(), ctx->input(1).shape(), addend, &shapes);
    if (!resolved.ok()) return resolved;
    for (;;) {
      Choice choice = Choose(backend_, shapes, fallback_);
      absl::Status served = Serve(ctx, shapes, &choice);
      if (choice.failure.empty()) return served;
      // From now on it is not chosen, so that this ends.
      choice.kernel->Fail(backend_.device, choice.failure);
      delete ctx->release_output(0).tensor;
    }
  });
  OP_REQUIRES_OK(ctx, status);
}

absl::Status BatchMatMulBase::Failed(std::string error, Choice* choice) {
  choice->failure = std::move(error);
  return absl::InternalError("a kernel failed");
}

}  // namespace tf_tvm_ops
