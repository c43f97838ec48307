#include "cc/ops/stock_kernel.h"

#include <array>
#include <cstring>
#include <string>

#include "tensorflow/core/framework/node_def.pb.h"
#include "tensorflow/core/framework/node_def_util.h"
#include "tensorflow/core/framework/types.h"
#include "tensorflow/core/public/version.h"
#include "tensorflow/core/util/util.h"

namespace tf_tvm_ops {
namespace {

using tensorflow::NodeDef;
using tensorflow::OpKernel;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;
using tensorflow::TensorShape;
using tensorflow::TensorValue;

std::unique_ptr<OpKernel> CreateStock(OpKernelConstruction* ctx, const char* op,
                                      tensorflow::DataType dtype, bool adj_x, bool adj_y,
                                      const char* label, absl::Status* status) {
  NodeDef node;
  node.set_name(ctx->def().name());
  node.set_op(op);
  node.set_device(ctx->def().device());
  node.add_input("lhs");
  node.add_input("rhs");
  tensorflow::AddNodeAttr("T", dtype, &node);
  tensorflow::AddNodeAttr("adj_x", adj_x, &node);
  tensorflow::AddNodeAttr("adj_y", adj_y, &node);
  tensorflow::AddNodeAttr("grad_x", false, &node);
  tensorflow::AddNodeAttr("grad_y", false, &node);
  if (label != nullptr) tensorflow::AddNodeAttr("_kernel", label, &node);
  auto* device = static_cast<tensorflow::DeviceBase*>(ctx->device());
  return tensorflow::CreateOpKernel(ctx->device_type(), device, device->GetAllocator({}), node,
                                    TF_GRAPH_DEF_VERSION, status);
}

// `tensor` seen with another shape of as many elements, in memory that Eigen takes as aligned.
absl::Status AlignedView(OpKernelContext* ctx, const Tensor& tensor, const TensorShape& shape,
                         Tensor* view) {
  const auto bytes = tensor.tensor_data();
  if (reinterpret_cast<uintptr_t>(bytes.data()) % EIGEN_MAX_ALIGN_BYTES != 0) {
    absl::Status status = ctx->allocate_temp(tensor.dtype(), shape, view);
    if (status.ok()) std::memcpy(view->data(), bytes.data(), bytes.size());
    return status;
  }
  if (!view->CopyFrom(tensor, shape)) return absl::InternalError("stock operand was not reshaped");
  return absl::OkStatus();
}

TensorShape Matrices(int64_t batch, const TensorShape& shape) {
  return TensorShape({batch, shape.dim_size(shape.dims() - 2), shape.dim_size(shape.dims() - 1)});
}

}  // namespace

absl::Status StockBatchMatMul::Make(OpKernelConstruction* ctx, tensorflow::DataType dtype,
                                    bool adj_x, bool adj_y,
                                    std::unique_ptr<StockBatchMatMul>* stock) {
  std::unique_ptr<StockBatchMatMul> made(new StockBatchMatMul);
  made->adj_x_ = adj_x;
  absl::Status status;
  made->eigen_ = CreateStock(ctx, "BatchMatMulV2", dtype, adj_x, adj_y, nullptr, &status);
  if (!status.ok()) return status;
  if (tensorflow::IsMKLEnabled()) {
    // The label under which TensorFlow registers oneDNN kernels of unchanged signature. A build
    // without them still has the Eigen kernel.
    absl::Status absent;
    made->onednn_ =
        CreateStock(ctx, "_MklBatchMatMulV2", dtype, adj_x, adj_y, "MklNameChangeOp", &absent);
  }
  *stock = std::move(made);
  return absl::OkStatus();
}

absl::Status StockBatchMatMul::Run(OpKernelContext* ctx, const MatMulShapes& shapes) const {
  const Tensor& lhs = ctx->input(0);
  const Tensor& rhs = ctx->input(1);
  const Product& product = shapes.product;
  const int64_t size = shapes.output.num_elements() / (product.m * product.n);

  TensorShape lhs_shape = lhs.shape(), rhs_shape = rhs.shape();
  bool plain = true;
  if (shapes.single_rhs && !adj_x_) {
    // One large product in place of many small ones.
    lhs_shape = TensorShape({1, size * product.m, product.k});
    rhs_shape = Matrices(1, rhs.shape());
  } else if (shapes.same_batch) {
    lhs_shape = Matrices(size, lhs.shape());
    rhs_shape = Matrices(size, rhs.shape());
  } else {
    plain = false;
  }

  std::array<Tensor, 2> operands;
  absl::Status status = AlignedView(ctx, lhs, lhs_shape, &operands[0]);
  if (status.ok()) status = AlignedView(ctx, rhs, rhs_shape, &operands[1]);
  if (!status.ok()) return status;

  OpKernel* kernel = plain && onednn_ ? onednn_.get() : eigen_.get();
  const std::array<TensorValue, 2> inputs = {TensorValue(&operands[0]), TensorValue(&operands[1])};
  OpKernelContext::Params params = *ctx->params();
  params.op_kernel = kernel;
  params.inputs = inputs;
  params.eigen_gpu_device = nullptr;
  OpKernelContext stock(&params, /*num_outputs=*/1);
  kernel->Compute(&stock);
  if (!stock.status().ok()) return stock.status();

  Tensor output;
  if (!output.CopyFrom(*stock.mutable_output(0), shapes.output)) {
    return absl::InternalError("stock output was not reshaped");
  }
  ctx->set_output(0, output);
  return absl::OkStatus();
}

}  // namespace tf_tvm_ops
