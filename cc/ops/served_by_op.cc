// TvmBatchMatMulServedBy on CPUs and GPUs.
#include "absl/status/status.h"
#include "cc/ops/batch_matmul_base.h"
#include "cc/ops/registrations.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/platform/tstring.h"

namespace tf_tvm_ops {
namespace {

using tensorflow::OpKernelContext;
using tensorflow::Tensor;

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

void RegisterServedByKernels() {
  using tensorflow::DEVICE_CPU, tensorflow::DEVICE_GPU;
#define TF_TVM_OPS_REGISTER(T)                                                  \
  REGISTER_KERNEL_BUILDER(                                                      \
      Name("TvmBatchMatMulServedBy").Device(DEVICE_CPU).TypeConstraint<T>("T"), \
      BatchMatMulServedByOp);                                                   \
  REGISTER_KERNEL_BUILDER(Name("TvmBatchMatMulServedBy")                        \
                              .Device(DEVICE_GPU)                               \
                              .TypeConstraint<T>("T")                           \
                              .HostMemory("server"),                            \
                          BatchMatMulServedByOp)
  TF_TVM_OPS_REGISTER(Eigen::half);
  TF_TVM_OPS_REGISTER(tensorflow::bfloat16);
  TF_TVM_OPS_REGISTER(float);
  TF_TVM_OPS_REGISTER(double);
#undef TF_TVM_OPS_REGISTER
}

}  // namespace tf_tvm_ops
