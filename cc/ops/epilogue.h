// What a kernel does to its product, for products that no kernel made.
#ifndef TF_TVM_OPS_CC_OPS_EPILOGUE_H_
#define TF_TVM_OPS_CC_OPS_EPILOGUE_H_

#include "absl/status/status.h"
#include "cc/ops/strided_view.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/tensor.h"

namespace tf_tvm_ops {

// A tensor, in memory of any alignment, read with its dimensions in the order of `view`.
struct StridedInput {
  const void* data = nullptr;
  tensorflow::DataType dtype = tensorflow::DT_INVALID;
  StridedView view;
};

// Fills `out`, whose memory is that of a tensor made here: out = scale * in + addend. Both inputs
// are broadcast to its shape. `addend` may be null, and has the dtype of `out`. 16-bit types are
// computed in float32 and rounded once. With a scale of 1 and no addend this copies, and converts.
// Runs on TensorFlow's intra-op threads.
absl::Status RunEpilogue(tensorflow::OpKernelContext* ctx, const StridedInput& in, double scale,
                         const StridedInput* addend, tensorflow::Tensor* out);

}  // namespace tf_tvm_ops

#endif  // TF_TVM_OPS_CC_OPS_EPILOGUE_H_
