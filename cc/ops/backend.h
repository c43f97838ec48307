// What there is to choose from on a device.
#ifndef TF_TVM_OPS_CC_OPS_BACKEND_H_
#define TF_TVM_OPS_CC_OPS_BACKEND_H_

#include <cstdint>

#include "cc/dispatch/lookup.h"
#include "cc/ops/matmul_shapes.h"
#include "tensorflow/core/framework/device_attributes.pb.h"

namespace tf_tvm_ops {

struct Backend {
  // The kernels that the device can run, of the dispatcher of this process, and its number there.
  const Lookup* kernels = nullptr;
  int device = 0;
  // Whether the generic kernel is expected to be faster than stock, which has no kernel made for
  // the shapes either, for a product of so many matrices. For packs that were not tuned.
  bool (*generic_pays)(const MatMulShapes& shapes, int64_t matrices) = nullptr;
  // Whether stock would use oneDNN for a product.
  bool (*faces_onednn)(const MatMulShapes& shapes) = nullptr;
};

const Backend& CpuBackend();

// That of a GPU, by its attributes; one that does not tell its compute capability, or has a number
// that TVM's runtime has no place for, has no kernels.
// Takes a lock: not for every call of an op.
Backend GpuBackend(const tensorflow::DeviceAttributes& device);

}  // namespace tf_tvm_ops

#endif  // TF_TVM_OPS_CC_OPS_BACKEND_H_
