// The ops of this library, one function each; registrations.cc calls them.
#ifndef TF_TVM_OPS_CC_OPS_REGISTRATIONS_H_
#define TF_TVM_OPS_CC_OPS_REGISTRATIONS_H_

namespace tf_tvm_ops {

// Each registers one op and its kernels with TensorFlow.
void RegisterBatchMatMul();

}  // namespace tf_tvm_ops

#endif  // TF_TVM_OPS_CC_OPS_REGISTRATIONS_H_
