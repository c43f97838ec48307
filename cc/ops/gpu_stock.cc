#include "cc/ops/gpu_stock.h"

#include <cstdint>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/strings/str_cat.h"
#include "tensorflow/core/framework/device_base.h"
#include "tensorflow/core/framework/node_def_util.h"
#include "tensorflow/core/framework/tensor.pb.h"
#include "tensorflow/core/framework/types.h"
#include "tensorflow/core/public/version.h"
#include "xla/stream_executor/device_address.h"
#include "xla/stream_executor/stream.h"

namespace tf_tvm_ops {
namespace {

using tensorflow::AddNodeAttr;
using tensorflow::AllocatorAttributes;
using tensorflow::DataType;
using tensorflow::NodeDef;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;
using tensorflow::TensorShape;
using tensorflow::TensorValue;

constexpr int kNoHostInput = -1;

NodeDef Node(const char* op, DataType dtype) {
  NodeDef node;
  node.set_op(op);
  node.add_input("x");
  node.add_input("y");
  AddNodeAttr("T", dtype, &node);
  return node;
}

NodeDef TransposeNode(DataType dtype) {
  NodeDef node = Node("Transpose", dtype);
  AddNodeAttr("Tperm", tensorflow::DT_INT32, &node);
  return node;
}

NodeDef MultiplyNode(const MatMulAttrs& attrs) {
  NodeDef node = Node("BatchMatMulV2", attrs.dtype);
  AddNodeAttr("adj_x", attrs.lhs.adjoint, &node);
  AddNodeAttr("adj_y", attrs.rhs.adjoint, &node);
  AddNodeAttr("grad_x", false, &node);
  AddNodeAttr("grad_y", false, &node);
  return node;
}

std::unique_ptr<LazyKernel> Lazy(NodeDef node) {
  return std::make_unique<LazyKernel>(std::move(node));
}

template <typename T>
void Set(double value, Tensor* scalar) {
  scalar->scalar<T>()() = static_cast<T>(value);
}

// A scalar of the dtype, in the device's memory. Done when the op is set up, as Const does it,
// since it waits for the copy.
absl::Status MakeScalar(OpKernelConstruction* ctx, DataType dtype, double value, Tensor* scalar) {
  Tensor host(dtype, TensorShape());
  switch (dtype) {
    case tensorflow::DT_HALF:
      Set<Eigen::half>(value, &host);
      break;
    case tensorflow::DT_BFLOAT16:
      Set<tensorflow::bfloat16>(value, &host);
      break;
    case tensorflow::DT_DOUBLE:
      Set<double>(value, &host);
      break;
    default:
      Set<float>(value, &host);
  }
  tensorflow::TensorProto proto;
  host.AsProtoTensorContent(&proto);
  auto* device = static_cast<tensorflow::DeviceBase*>(ctx->device());
  return device->MakeTensorFromProto(proto, AllocatorAttributes(), scalar);
}

// A copy in memory that is aligned, made on the stream of the op.
absl::Status AlignedCopy(OpKernelContext* ctx, const Tensor& tensor, Tensor* copy) {
  namespace se = stream_executor;
  absl::Status status = ctx->allocate_temp(tensor.dtype(), tensor.shape(), copy);
  if (!status.ok()) return status;
  const auto bytes = tensor.tensor_data();
  const se::DeviceAddressBase from(const_cast<char*>(bytes.data()), bytes.size());
  se::DeviceAddressBase to(copy->data(), bytes.size());
  return ctx->op_device_context()->stream()->Memcpy(&to, from, bytes.size());
}

bool IsAligned(const Tensor& tensor) {
  return reinterpret_cast<uintptr_t>(tensor.tensor_data().data()) % EIGEN_MAX_ALIGN_BYTES == 0;
}

}  // namespace

absl::Status LazyKernel::Make(OpKernelContext* ctx) {
  NodeDef node = node_;
  const NodeDef& outer = ctx->op_kernel().def();
  node.set_name(outer.name());
  node.set_device(outer.device());
  tensorflow::DeviceBase* device = ctx->device();
  absl::Status status;
  kernel_ =
      tensorflow::CreateOpKernel(tensorflow::DeviceType(tensorflow::DEVICE_GPU), device,
                                 device->GetAllocator({}), node, TF_GRAPH_DEF_VERSION, &status);
  if (status.ok()) return status;
  return absl::Status(status.code(),
                      absl::StrCat("No kernel of a pack serves the product, and TensorFlow's own ",
                                   node_.op(), " cannot be used: ", status.message()));
}

absl::Status LazyKernel::Run(OpKernelContext* ctx, std::initializer_list<const Tensor*> inputs,
                             int host_input, Tensor* output) {
  std::call_once(once_, [this, ctx] { status_ = Make(ctx); });
  if (!status_.ok()) return status_;
  absl::InlinedVector<TensorValue, 2> values;
  for (const Tensor* input : inputs) values.emplace_back(const_cast<Tensor*>(input));
  absl::InlinedVector<AllocatorAttributes, 2> attributes(inputs.size());
  if (host_input != kNoHostInput) attributes[host_input].set_on_host(true);
  const AllocatorAttributes of_output;
  OpKernelContext::Params params = *ctx->params();
  params.eigen_gpu_device = nullptr;  // that of the other belongs to the other
  params.op_kernel = kernel_.get();
  params.inputs = values;
  params.input_alloc_attrs = attributes;
  params.output_attr_array = &of_output;
  params.forward_from_array = nullptr;
  params.outputs_required_array = nullptr;
  OpKernelContext stock(&params, /*num_outputs=*/1);
  kernel_->Compute(&stock);
  if (stock.status().ok()) *output = *stock.mutable_output(0);
  return stock.status();
}

GpuStock::GpuStock(const MatMulAttrs& attrs)
    : attrs_(attrs),
      transpose_(Lazy(TransposeNode(attrs.dtype))),
      multiply_(Lazy(MultiplyNode(attrs))),
      scale_by_(Lazy(Node("Mul", attrs.dtype))),
      add_(Lazy(Node("AddV2", attrs.dtype))) {}

absl::Status GpuStock::Make(OpKernelConstruction* ctx, const MatMulAttrs& attrs,
                            std::unique_ptr<GpuStock>* stock) {
  std::unique_ptr<GpuStock> made(new GpuStock(attrs));
  if (attrs.scale != 1) {
    absl::Status status = MakeScalar(ctx, attrs.dtype, attrs.scale, &made->scale_);
    if (!status.ok()) return status;
  }
  *stock = std::move(made);
  return absl::OkStatus();
}

absl::Status GpuStock::Multiply(OpKernelContext* ctx, Tensor* product) const {
  Tensor lhs, rhs;
  absl::Status status = Operand(ctx, ctx->input(0), attrs_.lhs.length_first, &lhs);
  if (status.ok()) status = Operand(ctx, ctx->input(1), attrs_.rhs.length_first, &rhs);
  return status.ok() ? multiply_->Run(ctx, {&lhs, &rhs}, kNoHostInput, product) : status;
}

absl::Status GpuStock::Finish(OpKernelContext* ctx, Tensor product, Tensor* output) const {
  Tensor addend;
  absl::Status status;
  if (attrs_.has_addend) status = Operand(ctx, ctx->input(2), /*length_first=*/false, &addend);
  // Each step may write over an operand that has no other owner: the product, but not the scale.
  const Tensor scale = scale_;
  const auto replace_by = [&](const std::unique_ptr<LazyKernel>& kernel, const Tensor& operand) {
    if (!status.ok()) return;
    Tensor result;
    status = kernel->Run(ctx, {&product, &operand}, kNoHostInput, &result);
    product = std::move(result);
  };
  if (attrs_.scale != 1) replace_by(scale_by_, scale);
  if (attrs_.has_addend) replace_by(add_, addend);
  if (!status.ok()) return status;
  if (attrs_.output.length_first) return Swap(ctx, product, output);
  *output = std::move(product);
  return status;
}

absl::Status GpuStock::Operand(OpKernelContext* ctx, const Tensor& tensor, bool length_first,
                               Tensor* operand) const {
  Tensor aligned = tensor;
  if (!IsAligned(tensor)) {
    absl::Status status = AlignedCopy(ctx, tensor, &aligned);
    if (!status.ok()) return status;
  }
  if (length_first) return Swap(ctx, aligned, operand);
  *operand = std::move(aligned);
  return absl::OkStatus();
}

absl::Status GpuStock::Swap(OpKernelContext* ctx, const Tensor& tensor, Tensor* swapped) const {
  const int rank = tensor.dims();
  Tensor permutation(tensorflow::DT_INT32, TensorShape({rank}));
  auto order = permutation.vec<int32_t>();
  std::iota(order.data(), order.data() + rank, 0);
  std::swap(order(rank - 3), order(rank - 2));
  return transpose_->Run(ctx, {&tensor, &permutation}, /*host_input=*/1, swapped);
}

}  // namespace tf_tvm_ops
