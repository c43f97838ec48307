// What the OpKernels of the family have in common, on every device.
#ifndef TF_TVM_OPS_CC_OPS_BATCH_MATMUL_BASE_H_
#define TF_TVM_OPS_CC_OPS_BATCH_MATMUL_BASE_H_

#include <exception>

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

// Validates, looks up what serves the product, and has it served.
class BatchMatMulBase : public tensorflow::OpKernel {
 public:
  explicit BatchMatMulBase(tensorflow::OpKernelConstruction* ctx);

  void Compute(tensorflow::OpKernelContext* ctx) final;

 protected:
  virtual absl::Status Serve(tensorflow::OpKernelContext* ctx, const MatMulShapes& shapes,
                             Choice* choice) const = 0;

  MatMulAttrs attrs_;

 private:
  Fallback fallback_ = Fallback::kAuto;
  Backend backend_;
};

}  // namespace tf_tvm_ops

#endif  // TF_TVM_OPS_CC_OPS_BATCH_MATMUL_BASE_H_
