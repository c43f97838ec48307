#include "cc/ops/stock_kernel.h"

#include <array>
#include <cstring>
#include <string>

#include "cc/ops/epilogue.h"
#include "cc/ops/strided_view.h"
#include "tensorflow/core/framework/node_def.pb.h"
#include "tensorflow/core/framework/node_def_util.h"
#include "tensorflow/core/framework/types.h"
#include "tensorflow/core/public/version.h"
#include "tensorflow/core/util/util.h"

namespace tf_tvm_ops {
namespace {

using tensorflow::DataType;
using tensorflow::NodeDef;
using tensorflow::OpKernel;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;
using tensorflow::TensorShape;
using tensorflow::TensorValue;

std::unique_ptr<OpKernel> CreateStock(OpKernelConstruction* ctx, const char* op, DataType dtype,
                                      const MatMulAttrs& attrs, const char* label,
                                      absl::Status* status) {
  NodeDef node;
  node.set_name(ctx->def().name());
  node.set_op(op);
  node.set_device(ctx->def().device());
  node.add_input("lhs");
  node.add_input("rhs");
  tensorflow::AddNodeAttr("T", dtype, &node);
  tensorflow::AddNodeAttr("adj_x", attrs.lhs.adjoint, &node);
  tensorflow::AddNodeAttr("adj_y", attrs.rhs.adjoint, &node);
  tensorflow::AddNodeAttr("grad_x", false, &node);
  tensorflow::AddNodeAttr("grad_y", false, &node);
  if (label != nullptr) tensorflow::AddNodeAttr("_kernel", label, &node);
  auto* device = static_cast<tensorflow::DeviceBase*>(ctx->device());
  return tensorflow::CreateOpKernel(ctx->device_type(), device, device->GetAllocator({}), node,
                                    TF_GRAPH_DEF_VERSION, status);
}

// `tensor` as stock takes it: heads first, of this dtype, in memory that Eigen takes as aligned,
// and with another shape of as many elements. Shared with `tensor` if it is all that already.
absl::Status StockOperand(OpKernelContext* ctx, const Tensor& tensor, const MatMulLayout& layout,
                          DataType dtype, const TensorShape& shape, Tensor* operand) {
  StridedView view(tensor.shape());
  bool reordered = false;
  if (layout.length_first) {
    reordered = view.BroadcastExtent(1) != 1 && view.BroadcastExtent(2) != 1;
    view.Swap(1, 2);
  }
  const auto bytes = tensor.tensor_data();
  const bool aligned = reinterpret_cast<uintptr_t>(bytes.data()) % EIGEN_MAX_ALIGN_BYTES == 0;
  if (!reordered && aligned && tensor.dtype() == dtype) {
    if (operand->CopyFrom(tensor, shape)) return absl::OkStatus();
    return absl::InternalError("stock operand was not reshaped");
  }
  Tensor copy;
  absl::Status status = ctx->allocate_temp(dtype, HeadsFirst(tensor.shape(), layout), &copy);
  if (status.ok()) {
    status = RunEpilogue(ctx, {bytes.data(), tensor.dtype(), view}, /*scale=*/1, nullptr, &copy);
  }
  if (status.ok() && !operand->CopyFrom(copy, shape)) {
    status = absl::InternalError("stock operand was not reshaped");
  }
  return status;
}

TensorShape Matrices(int64_t batch, const TensorShape& shape) {
  return TensorShape({batch, shape.dim_size(shape.dims() - 2), shape.dim_size(shape.dims() - 1)});
}

bool Is16Bit(DataType dtype) {
  return dtype == tensorflow::DT_HALF || dtype == tensorflow::DT_BFLOAT16;
}

}  // namespace

bool OneDnnTakes(DataType dtype) {
  return tensorflow::IsMKLEnabled() &&
         (!Is16Bit(dtype) || tensorflow::IsDataTypeSupportedByOneDNNOnThisCPU(dtype));
}

absl::Status StockBatchMatMul::Make(OpKernelConstruction* ctx, const MatMulAttrs& attrs,
                                    std::unique_ptr<StockBatchMatMul>* stock) {
  std::unique_ptr<StockBatchMatMul> made(new StockBatchMatMul);
  made->attrs_ = attrs;
  Kernel& eigen = made->eigen_;
  Kernel& onednn = made->onednn_;
  eigen.dtype = onednn.dtype = attrs.dtype;
  if (Is16Bit(attrs.dtype) && (attrs.scale != 1 || attrs.has_addend)) {
    eigen.dtype = onednn.dtype = tensorflow::DT_FLOAT;
  } else if (attrs.dtype == tensorflow::DT_BFLOAT16) {
    eigen.dtype = tensorflow::DT_FLOAT;
    if (!OneDnnTakes(attrs.dtype)) onednn.dtype = tensorflow::DT_FLOAT;
  }
  absl::Status status;
  eigen.op = CreateStock(ctx, "BatchMatMulV2", eigen.dtype, attrs, nullptr, &status);
  if (!status.ok()) return status;
  if (OneDnnTakes(onednn.dtype)) {
    // The label under which TensorFlow registers oneDNN kernels of unchanged signature. A build
    // without them still has the Eigen kernel.
    absl::Status absent;
    onednn.op =
        CreateStock(ctx, "_MklBatchMatMulV2", onednn.dtype, attrs, "MklNameChangeOp", &absent);
  }
  *stock = std::move(made);
  return absl::OkStatus();
}

absl::Status StockBatchMatMul::Run(OpKernelContext* ctx, const MatMulShapes& shapes,
                                   Tensor* product) const {
  const Tensor& lhs = ctx->input(0);
  const Tensor& rhs = ctx->input(1);
  const int64_t m = shapes.product.m, k = shapes.product.k;
  const int64_t size = shapes.product_shape.num_elements() / (m * shapes.product.n);

  TensorShape lhs_shape = HeadsFirst(lhs.shape(), attrs_.lhs);
  TensorShape rhs_shape = HeadsFirst(rhs.shape(), attrs_.rhs);
  if (shapes.single_rhs) {
    // One large product in place of many small ones.
    lhs_shape = TensorShape({1, size * m, k});
    rhs_shape = Matrices(1, rhs_shape);
  } else if (shapes.same_batch) {
    lhs_shape = Matrices(size, lhs_shape);
    rhs_shape = Matrices(size, rhs_shape);
  }

  const Kernel& kernel = shapes.is_plain() && onednn_.op ? onednn_ : eigen_;
  std::array<Tensor, 2> operands;
  absl::Status status = StockOperand(ctx, lhs, attrs_.lhs, kernel.dtype, lhs_shape, &operands[0]);
  if (status.ok()) {
    status = StockOperand(ctx, rhs, attrs_.rhs, kernel.dtype, rhs_shape, &operands[1]);
  }
  if (!status.ok()) return status;

  const std::array<TensorValue, 2> inputs = {TensorValue(&operands[0]), TensorValue(&operands[1])};
  OpKernelContext::Params params = *ctx->params();
  params.op_kernel = kernel.op.get();
  params.inputs = inputs;
  params.eigen_gpu_device = nullptr;
  OpKernelContext stock(&params, /*num_outputs=*/1);
  kernel.op->Compute(&stock);
  if (!stock.status().ok()) return stock.status();
  if (!product->CopyFrom(*stock.mutable_output(0), shapes.product_shape)) {
    return absl::InternalError("stock output was not reshaped");
  }
  return absl::OkStatus();
}

}  // namespace tf_tvm_ops
