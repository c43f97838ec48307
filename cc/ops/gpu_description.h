// What TensorFlow tells of a GPU.
#ifndef TF_TVM_OPS_CC_OPS_GPU_DESCRIPTION_H_
#define TF_TVM_OPS_CC_OPS_GPU_DESCRIPTION_H_

#include "cc/dispatch/cuda_targets.h"
#include "tensorflow/core/framework/device_attributes.pb.h"

namespace tf_tvm_ops {

struct GpuDescription {
  int device =
      -1;  // CUDA's number, which need not be that of the name /GPU:0; -1 if it is not told
  ComputeCapability capability;  // {0, 0} if it is not told
};

// From the text "device: 0, name: …, compute capability: 9.0", which is where TensorFlow itself
// reads it in Python.
GpuDescription DescribeGpu(const tensorflow::DeviceAttributes& attributes);

}  // namespace tf_tvm_ops

#endif  // TF_TVM_OPS_CC_OPS_GPU_DESCRIPTION_H_
