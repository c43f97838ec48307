// TvmBatchMatMul: stock BatchMatMulV2 served by kernels that were compiled ahead of time.
#include <cstring>
#include <exception>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "cc/dispatch/dispatcher.h"
#include "cc/dispatch/product.h"
#include "cc/ops/choice.h"
#include "cc/ops/matmul_shapes.h"
#include "cc/ops/registrations.h"
#include "cc/ops/sharding.h"
#include "cc/ops/stock_kernel.h"
#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/shape_inference.h"
#include "tensorflow/core/platform/tstring.h"

namespace tf_tvm_ops {
namespace {

using tensorflow::OpKernel;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;

// An exception that left a kernel would end the process.
template <typename Body>
absl::Status Guarded(Body body) {
  try {
    return body();
  } catch (const std::exception& e) {
    return absl::InternalError(absl::StrCat("TvmBatchMatMul: ", e.what()));
  } catch (...) {
    return absl::InternalError("TvmBatchMatMul: unknown exception");
  }
}

class BatchMatMulBase : public OpKernel {
 public:
  explicit BatchMatMulBase(OpKernelConstruction* ctx) : OpKernel(ctx) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("T", &dtype_));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("adj_x", &adj_x_));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("adj_y", &adj_y_));
    const absl::Status status = Guarded([this] {
      fallback_ = FallbackInForce();
      dispatcher_ = &Dispatcher::Global();
      return absl::OkStatus();
    });
    OP_REQUIRES_OK(ctx, status);
  }

  void Compute(OpKernelContext* ctx) final {
    const absl::Status status = Guarded([this, ctx] {
      MatMulShapes shapes;
      absl::Status resolved = ResolveMatMulShapes(ctx->input(0).shape(), ctx->input(1).shape(),
                                                  adj_x_, adj_y_, &shapes);
      if (!resolved.ok()) return resolved;
      return Serve(ctx, shapes, Choose(*dispatcher_, shapes, fallback_));
    });
    OP_REQUIRES_OK(ctx, status);
  }

 protected:
  virtual absl::Status Serve(OpKernelContext* ctx, const MatMulShapes& shapes,
                             const Choice& choice) const = 0;

  tensorflow::DataType dtype_ = tensorflow::DT_INVALID;
  bool adj_x_ = false;
  bool adj_y_ = false;

 private:
  Fallback fallback_ = Fallback::kAuto;
  const Dispatcher* dispatcher_ = nullptr;
};

class BatchMatMulOp final : public BatchMatMulBase {
 public:
  explicit BatchMatMulOp(OpKernelConstruction* ctx) : BatchMatMulBase(ctx) {
    if (!ctx->status().ok()) return;
    const absl::Status status = Guarded(
        [this, ctx] { return StockBatchMatMul::Make(ctx, dtype_, adj_x_, adj_y_, &stock_); });
    OP_REQUIRES_OK(ctx, status);
  }

 protected:
  absl::Status Serve(OpKernelContext* ctx, const MatMulShapes& shapes,
                     const Choice& choice) const override {
    if (choice.server == Server::kStock) return stock_->Run(ctx, shapes);
    Tensor* output = nullptr;
    absl::Status status = ctx->allocate_output(0, shapes.output, &output);
    if (!status.ok()) return status;
    if (choice.server == Server::kZeros) {
      if (output->TotalBytes() > 0) std::memset(output->data(), 0, output->TotalBytes());
      return absl::OkStatus();
    }
    Product product = shapes.product;
    // tensor_data() rather than flat(): inputs need not be aligned, and flat() aborts if not.
    product.lhs.data = ctx->input(0).tensor_data().data();
    product.rhs.data = ctx->input(1).tensor_data().data();
    product.out.data = output->data();
    Plan plan;
    Plan::Make(product, &plan);
    return RunSharded(ctx, plan, *choice.kernel, CyclesPerMatrix(product));
  }

 private:
  std::unique_ptr<StockBatchMatMul> stock_;
};

// Says what would serve the product of its inputs, which are not read.
class BatchMatMulServedByOp final : public BatchMatMulBase {
 public:
  using BatchMatMulBase::BatchMatMulBase;

 protected:
  absl::Status Serve(OpKernelContext* ctx, const MatMulShapes&,
                     const Choice& choice) const override {
    Tensor* output = nullptr;
    absl::Status status = ctx->allocate_output(0, {}, &output);
    if (status.ok()) output->scalar<tensorflow::tstring>()() = choice.ToString();
    return status;
  }
};

}  // namespace

void RegisterBatchMatMul() {
  REGISTER_OP("TvmBatchMatMul")
      .Input("lhs: T")
      .Input("rhs: T")
      .Output("output: T")
      .Attr("T: {float}")
      .Attr("adj_x: bool = false")
      .Attr("adj_y: bool = false")
      .SetShapeFn(tensorflow::shape_inference::BatchMatMulV2Shape)
      .Doc(R"doc(
Multiplies slices of two tensors in batches, as BatchMatMulV2 does.

lhs: `[..., M, K]`, or `[..., K, M]` with `adj_x`.
rhs: `[..., K, N]`, or `[..., N, K]` with `adj_y`.
output: `[..., M, N]`; batch dimensions are broadcast.
adj_x: Whether to transpose the matrices of `lhs`.
adj_y: Whether to transpose the matrices of `rhs`.
)doc");

  REGISTER_OP("TvmBatchMatMulServedBy")
      .Input("lhs: T")
      .Input("rhs: T")
      .Output("server: string")
      .Attr("T: {float}")
      .Attr("adj_x: bool = false")
      .Attr("adj_y: bool = false")
      .SetShapeFn(tensorflow::shape_inference::ScalarShape)
      .Doc(R"doc(
Names what serves a TvmBatchMatMul of the same inputs and attributes.

server: The symbol of a kernel, "stock (...)" with the reason, or "zeros" for an empty product.
)doc");

  REGISTER_KERNEL_BUILDER(
      Name("TvmBatchMatMul").Device(tensorflow::DEVICE_CPU).TypeConstraint<float>("T"),
      BatchMatMulOp);
  REGISTER_KERNEL_BUILDER(
      Name("TvmBatchMatMulServedBy").Device(tensorflow::DEVICE_CPU).TypeConstraint<float>("T"),
      BatchMatMulServedByOp);
}

}  // namespace tf_tvm_ops
