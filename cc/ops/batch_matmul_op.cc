// TvmBatchMatMul, TvmBatchMatMulAdd and TvmBatchMatMulTranspose on CPUs.
#include <cstring>
#include <exception>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "cc/dispatch/dispatcher.h"
#include "cc/dispatch/product.h"
#include "cc/ops/choice.h"
#include "cc/ops/epilogue.h"
#include "cc/ops/matmul_attrs.h"
#include "cc/ops/matmul_shapes.h"
#include "cc/ops/registrations.h"
#include "cc/ops/sharding.h"
#include "cc/ops/stock_kernel.h"
#include "cc/ops/strided_view.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/platform/tstring.h"

namespace tf_tvm_ops {
namespace {

using tensorflow::OpKernel;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;
using tensorflow::TensorShape;

// An exception that left a kernel would end the process.
template <typename Body>
absl::Status Guarded(Body body) {
  try {
    return body();
  } catch (const std::exception& e) {
    return absl::InternalError(absl::StrCat("tf_tvm_ops: ", e.what()));
  } catch (...) {
    return absl::InternalError("tf_tvm_ops: unknown exception");
  }
}

// tensor_data() rather than flat(): inputs need not be aligned, and flat() aborts if not.
const void* Data(const Tensor& tensor) { return tensor.tensor_data().data(); }

class BatchMatMulBase : public OpKernel {
 public:
  explicit BatchMatMulBase(OpKernelConstruction* ctx) : OpKernel(ctx) {
    const absl::Status status = Guarded([this, ctx] {
      fallback_ = FallbackInForce();
      dispatcher_ = &Dispatcher::Global();
      return MatMulAttrs::Read(ctx, &attrs_);
    });
    OP_REQUIRES_OK(ctx, status);
  }

  void Compute(OpKernelContext* ctx) final {
    const absl::Status status = Guarded([this, ctx] {
      MatMulShapes shapes;
      const TensorShape* addend = ctx->num_inputs() == 3 ? &ctx->input(2).shape() : nullptr;
      absl::Status resolved = ResolveMatMulShapes(attrs_, ctx->input(0).shape(),
                                                  ctx->input(1).shape(), addend, &shapes);
      if (!resolved.ok()) return resolved;
      Choice choice = Choose(*dispatcher_, shapes, fallback_);
      return Serve(ctx, shapes, &choice);
    });
    OP_REQUIRES_OK(ctx, status);
  }

 protected:
  virtual absl::Status Serve(OpKernelContext* ctx, const MatMulShapes& shapes,
                             Choice* choice) const = 0;

  MatMulAttrs attrs_;

 private:
  Fallback fallback_ = Fallback::kAuto;
  const Dispatcher* dispatcher_ = nullptr;
};

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
    return RunSharded(ctx, choice->plan, *choice->kernel, CyclesPerMatrix(shapes.product));
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

// Says what would serve the product of its inputs, which are not read.
class BatchMatMulServedByOp final : public BatchMatMulBase {
 public:
  using BatchMatMulBase::BatchMatMulBase;

 protected:
  absl::Status Serve(OpKernelContext* ctx, const MatMulShapes&, Choice* choice) const override {
    Tensor* output = nullptr;
    absl::Status status = ctx->allocate_output(0, {}, &output);
    if (status.ok()) output->scalar<tensorflow::tstring>()() = choice->ToString();
    return status;
  }
};

}  // namespace

void RegisterBatchMatMulKernels() {
  using tensorflow::DEVICE_CPU;
#define TF_TVM_OPS_REGISTER(T)                                                                   \
  REGISTER_KERNEL_BUILDER(Name("TvmBatchMatMul").Device(DEVICE_CPU).TypeConstraint<T>("T"),      \
                          BatchMatMulOp);                                                        \
  REGISTER_KERNEL_BUILDER(Name("TvmBatchMatMulAdd").Device(DEVICE_CPU).TypeConstraint<T>("T"),   \
                          BatchMatMulOp);                                                        \
  REGISTER_KERNEL_BUILDER(                                                                       \
      Name("TvmBatchMatMulTranspose").Device(DEVICE_CPU).TypeConstraint<T>("T"), BatchMatMulOp); \
  REGISTER_KERNEL_BUILDER(                                                                       \
      Name("TvmBatchMatMulServedBy").Device(DEVICE_CPU).TypeConstraint<T>("T"),                  \
      BatchMatMulServedByOp)
  TF_TVM_OPS_REGISTER(Eigen::half);
  TF_TVM_OPS_REGISTER(tensorflow::bfloat16);
  TF_TVM_OPS_REGISTER(float);
  TF_TVM_OPS_REGISTER(double);
#undef TF_TVM_OPS_REGISTER
}

}  // namespace tf_tvm_ops
