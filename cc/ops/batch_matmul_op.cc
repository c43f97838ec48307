// TvmBatchMatMul, TvmBatchMatMulAdd and TvmBatchMatMulTranspose on CPUs.
#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "cc/dispatch/product.h"
#include "cc/ops/batch_matmul_base.h"
#include "cc/ops/epilogue.h"
#include "cc/ops/registrations.h"
#include "cc/ops/sharding.h"
#include "cc/ops/stock_kernel.h"
#include "cc/ops/strided_view.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace tf_tvm_ops {
namespace {

using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;
using tensorflow::TensorShape;

class BatchMatMulOp final : public BatchMatMulBase {
 public:
  explicit BatchMatMulOp(OpKernelConstruction* ctx) : BatchMatMulBase(ctx) {
    if (!ctx->status().ok()) return;
    const absl::Status status =
        Guarded([this, ctx] { return StockBatchMatMul::Make(ctx, attrs_, &stock_); });
    OP_REQUIRES_OK(ctx, status);
  }

 protected:
  absl::Status Serve(OpKernelContext* ctx, const MatMulShapes& shapes,
                     Choice* choice) const override {
    Tensor* output = nullptr;
    absl::Status status;
    if (choice->server == Server::kKernel && !shapes.enlarged) {
      status = ctx->allocate_output(0, shapes.output, &output);
      return status.ok() ? RunKernel(ctx, shapes, choice, output) : status;
    }
    Tensor product;
    status = ComputeProduct(ctx, shapes, choice, &product);
    if (!status.ok()) return status;
    if (choice->server == Server::kStock && IsOutput(product)) {
      ctx->set_output(0, product);
      return status;
    }
    status = ctx->allocate_output(0, shapes.output, &output);
    return status.ok() ? Finish(ctx, product, output) : status;
  }

 private:
  static absl::Status RunKernel(OpKernelContext* ctx, const MatMulShapes& shapes, Choice* choice,
                                Tensor* out) {
    const void* addend = shapes.product.has_addend ? Data(ctx->input(2)) : nullptr;
    choice->plan.Bind(Data(ctx->input(0)), Data(ctx->input(1)), addend, out->data());
    std::string error =
        RunSharded(ctx, choice->plan, *choice->kernel, CyclesPerMatrix(shapes.product));
    return error.empty() ? absl::OkStatus() : Failed(std::move(error), choice);
  }

  // lhs·rhs alone, row-major; for an empty product the one number that all its elements are.
  absl::Status ComputeProduct(OpKernelContext* ctx, const MatMulShapes& shapes, Choice* choice,
                              Tensor* product) const {
    if (choice->server == Server::kStock) return stock_->Run(ctx, shapes, product);
    const bool zeros = choice->server == Server::kZeros;
    absl::Status status =
        ctx->allocate_temp(attrs_.dtype, zeros ? TensorShape() : shapes.product_shape, product);
    if (!status.ok()) return status;
    if (!zeros) return RunKernel(ctx, shapes, choice, product);
    std::memset(product->data(), 0, product->TotalBytes());
    return status;
  }

  // Whether lhs·rhs by stock is all that is asked for.
  bool IsOutput(const Tensor& product) const {
    return attrs_.scale == 1 && !attrs_.has_addend && !attrs_.output.length_first &&
           product.dtype() == attrs_.dtype;
  }

  absl::Status Finish(OpKernelContext* ctx, const Tensor& product, Tensor* output) const {
    StridedInput in{product.data(), product.dtype(), StridedView(product.shape())};
    if (attrs_.output.length_first && in.view.rank() > 0) in.view.Swap(1, 2);
    if (!attrs_.has_addend) return RunEpilogue(ctx, in, attrs_.scale, nullptr, output);
    const Tensor& addend = ctx->input(2);
    const StridedInput added{Data(addend), addend.dtype(), StridedView(addend.shape())};
    return RunEpilogue(ctx, in, attrs_.scale, &added, output);
  }

  std::unique_ptr<StockBatchMatMul> stock_;
};

}  // namespace

void RegisterCpuKernels() { TF_TVM_OPS_REGISTER_FAMILY(tensorflow::DEVICE_CPU, BatchMatMulOp); }

}  // namespace tf_tvm_ops
