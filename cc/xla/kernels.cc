#include "cc/xla/kernels.h"

#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cc/ops/matmul_attrs.h"
#include "cc/ops/matmul_shapes.h"
#include "cc/xla/lowering.h"
#include "tensorflow/compiler/tf2xla/xla_op_kernel.h"
#include "tensorflow/compiler/tf2xla/xla_op_registry.h"
#include "tensorflow/core/framework/types.h"
#include "xla/hlo/builder/xla_builder.h"
#include "xla/shape.h"

namespace tf_tvm_ops {
namespace {

using tensorflow::TensorShape;
using tensorflow::XlaOpKernelContext;

class BatchMatMulXlaOp final : public tensorflow::XlaOpKernel {
 public:
  explicit BatchMatMulXlaOp(tensorflow::OpKernelConstruction* ctx)
      : XlaOpKernel(ctx),
        on_cpu_(ctx->device_type().type_string() == tensorflow::DEVICE_CPU_XLA_JIT) {
    OP_REQUIRES_OK(ctx, MatMulAttrs::Read(ctx, &attrs_));
  }

  void Compile(XlaOpKernelContext* ctx) override { OP_REQUIRES_OK(ctx, Lower(ctx)); }

 private:
  absl::Status Lower(XlaOpKernelContext* ctx) const {
    XlaOperand lhs, rhs;
    std::optional<XlaOperand> addend;
    absl::Status status = Read(ctx, 0, &lhs);
    if (status.ok()) status = Read(ctx, 1, &rhs);
    if (status.ok() && attrs_.has_addend) status = Read(ctx, 2, &addend.emplace());
    if (!status.ok()) return status;
    if (on_cpu_ && tensorflow::DataTypeSize(attrs_.dtype) == 2) {
      // The CPU backend lacks dots of bfloat16 that give float32 for some orders of dimensions.
      lhs.op = xla::ConvertElementType(lhs.op, xla::F32);
      rhs.op = xla::ConvertElementType(rhs.op, xla::F32);
    }
    MatMulShapes shapes;
    status = ResolveMatMulShapes(attrs_, lhs.shape, rhs.shape, addend ? &addend->shape : nullptr,
                                 &shapes);
    if (status.ok()) ctx->SetOutput(0, LowerMatMul(attrs_, shapes, lhs, rhs, addend));
    return status;
  }

  static absl::Status Read(XlaOpKernelContext* ctx, int index, XlaOperand* operand) {
    const absl::StatusOr<xla::Shape> shape = ctx->InputXlaShape(index);
    if (!shape.ok()) return shape.status();
    operand->op = ctx->Input(index);
    return TensorShape::BuildTensorShape(shape->dimensions(), &operand->shape);
  }

  const bool on_cpu_;
  MatMulAttrs attrs_;
};

}  // namespace

tensorflow::OpKernel* MakeXlaKernel(tensorflow::OpKernelConstruction* ctx) {
  return new BatchMatMulXlaOp(ctx);
}

}  // namespace tf_tvm_ops
