// What the OpKernels of the family have in common, on every device.
#ifndef TF_TVM_OPS_CC_OPS_BATCH_MATMUL_BASE_H_
#define TF_TVM_OPS_CC_OPS_BATCH_MATMUL_BASE_H_

#include <exception>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "cc/ops/backend.h"
#include "cc/ops/choice.h"
#include "cc/ops/matmul_attrs.h"
#include "cc/ops/matmul_shapes.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/tensor.h"

namespace tf_tvm_ops {

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
inline const void* Data(const tensorflow::Tensor& tensor) { return tensor.tensor_data().data(); }

// Validates, looks up what serves the product, and has it served; by what is next in line if a
// kernel turns out to be of no use.
class BatchMatMulBase : public tensorflow::OpKernel {
 public:
  explicit BatchMatMulBase(tensorflow::OpKernelConstruction* ctx);

  void Compute(tensorflow::OpKernelContext* ctx) final;

 protected:
  // An error is the op's, unless it left a `failure` in the choice. The output may be set then.
  virtual absl::Status Serve(tensorflow::OpKernelContext* ctx, const MatMulShapes& shapes,
                             Choice* choice) const = 0;

  // What Serve returns for a kernel that failed, so that something else serves.
  static absl::Status Failed(std::string error, Choice* choice);

  MatMulAttrs attrs_;

 private:
  Fallback fallback_ = Fallback::kAuto;
  Backend backend_;
};

// Registers an OpKernel for every op and dtype of the family on a device.
#define TF_TVM_OPS_REGISTER_DTYPE(DEVICE, KERNEL, T)                                             \
  REGISTER_KERNEL_BUILDER(Name("TvmBatchMatMul").Device(DEVICE).TypeConstraint<T>("T"), KERNEL); \
  REGISTER_KERNEL_BUILDER(Name("TvmBatchMatMulAdd").Device(DEVICE).TypeConstraint<T>("T"),       \
                          KERNEL);                                                               \
  REGISTER_KERNEL_BUILDER(Name("TvmBatchMatMulTranspose").Device(DEVICE).TypeConstraint<T>("T"), \
                          KERNEL)
#define TF_TVM_OPS_REGISTER_FAMILY(DEVICE, KERNEL)                 \
  TF_TVM_OPS_REGISTER_DTYPE(DEVICE, KERNEL, Eigen::half);          \
  TF_TVM_OPS_REGISTER_DTYPE(DEVICE, KERNEL, tensorflow::bfloat16); \
  TF_TVM_OPS_REGISTER_DTYPE(DEVICE, KERNEL, float);                \
  TF_TVM_OPS_REGISTER_DTYPE(DEVICE, KERNEL, double)

}  // namespace tf_tvm_ops

#endif  // TF_TVM_OPS_CC_OPS_BATCH_MATMUL_BASE_H_
