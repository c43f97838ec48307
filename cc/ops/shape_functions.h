// Shapes of the ops' outputs when a graph is built, as far as those of the inputs are known.
#ifndef TF_TVM_OPS_CC_OPS_SHAPE_FUNCTIONS_H_
#define TF_TVM_OPS_CC_OPS_SHAPE_FUNCTIONS_H_

#include "absl/status/status.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace tf_tvm_ops {

absl::Status BatchMatMulShape(tensorflow::shape_inference::InferenceContext* c);
absl::Status BatchMatMulAddShape(tensorflow::shape_inference::InferenceContext* c);
absl::Status BatchMatMulTransposeShape(tensorflow::shape_inference::InferenceContext* c);

}  // namespace tf_tvm_ops

#endif  // TF_TVM_OPS_CC_OPS_SHAPE_FUNCTIONS_H_
