// The ops of this library; registrations.cc calls these.
#ifndef TF_TVM_OPS_CC_OPS_REGISTRATIONS_H_
#define TF_TVM_OPS_CC_OPS_REGISTRATIONS_H_

namespace tf_tvm_ops {

// Each registers with TensorFlow, once in a process: the definitions of the ops, and their kernels.
void RegisterBatchMatMulOps();
void RegisterCpuKernels();
void RegisterGpuKernels();
void RegisterServedByKernels();

}  // namespace tf_tvm_ops

#endif  // TF_TVM_OPS_CC_OPS_REGISTRATIONS_H_
