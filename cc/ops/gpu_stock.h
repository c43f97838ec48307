// TensorFlow's own GPU kernels for what an op of the family computes, run from inside it.
#ifndef TF_TVM_OPS_CC_OPS_GPU_STOCK_H_
#define TF_TVM_OPS_CC_OPS_GPU_STOCK_H_

#include <initializer_list>
#include <memory>
#include <mutex>

#include "absl/status/status.h"
#include "cc/ops/matmul_attrs.h"
#include "tensorflow/core/framework/node_def.pb.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/tensor.h"

namespace tf_tvm_ops {

// A stock kernel of the device that the op runs on, made when first used: an op that kernels of
// packs serve needs none, nor a TensorFlow that has it.
class LazyKernel {
 public:
  // `node`: op, inputs and attributes.
  explicit LazyKernel(tensorflow::NodeDef node) : node_(std::move(node)) {}

  // Of the input at `host_input`, if there is one, the memory is the host's.
  absl::Status Run(tensorflow::OpKernelContext* ctx,
                   std::initializer_list<const tensorflow::Tensor*> inputs, int host_input,
                   tensorflow::Tensor* output);

 private:
  absl::Status Make(tensorflow::OpKernelContext* ctx);

  const tensorflow::NodeDef node_;
  std::once_flag once_;
  absl::Status status_;
  std::unique_ptr<tensorflow::OpKernel> kernel_;
};

// The ops that the graph would hold without ours, one after the other on the op's stream:
// transposes of operands, BatchMatMulV2 (cuBLAS), Mul, AddV2, a transpose of the product. Results
// are those of these ops, so 16-bit types are rounded after each; all of them take operands and
// sums without elements. Operands that are not aligned as TensorFlow's own are copied, since stock
// aborts the process on them.
class GpuStock {
 public:
  static absl::Status Make(tensorflow::OpKernelConstruction* ctx, const MatMulAttrs& attrs,
                           std::unique_ptr<GpuStock>* stock);

  // lhs·rhs of inputs 0 and 1, [batch..., M, N], without scale or addend.
  absl::Status Multiply(tensorflow::OpKernelContext* ctx, tensorflow::Tensor* product) const;

  // What the op does to its product, with input 2 for an addend. `product` may be overwritten.
  absl::Status Finish(tensorflow::OpKernelContext* ctx, tensorflow::Tensor product,
                      tensorflow::Tensor* output) const;

 private:
  explicit GpuStock(const MatMulAttrs& attrs);

  // The tensor with the dimensions -3 and -2 in the other order if they are to be swapped, aligned.
  absl::Status Operand(tensorflow::OpKernelContext* ctx, const tensorflow::Tensor& tensor,
                       bool length_first, tensorflow::Tensor* operand) const;
  absl::Status Swap(tensorflow::OpKernelContext* ctx, const tensorflow::Tensor& tensor,
                    tensorflow::Tensor* swapped) const;

  const MatMulAttrs attrs_;
  tensorflow::Tensor scale_;  // in the GPU's memory, if it is not 1
  const std::unique_ptr<LazyKernel> transpose_;
  const std::unique_ptr<LazyKernel> multiply_;
  const std::unique_ptr<LazyKernel> scale_by_;
  const std::unique_ptr<LazyKernel> add_;
};

}  // namespace tf_tvm_ops

#endif  // TF_TVM_OPS_CC_OPS_GPU_STOCK_H_
