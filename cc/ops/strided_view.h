// The dimensions of a dense tensor in an order of one's choice.
#ifndef TF_TVM_OPS_CC_OPS_STRIDED_VIEW_H_
#define TF_TVM_OPS_CC_OPS_STRIDED_VIEW_H_

#include <cstdint>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "tensorflow/core/framework/tensor_shape.h"

namespace tf_tvm_ops {

// Extents and strides in elements. Dimensions are counted from the last one, which is 0, because
// that is how shapes of different ranks are aligned. Allocates nothing up to rank 8.
class StridedView {
 public:
  StridedView() = default;  // a scalar

  // As TensorFlow stores it: row-major.
  explicit StridedView(const tensorflow::TensorShape& shape)
      : extents_(shape.dims()), strides_(shape.dims()) {
    // Strides of an empty tensor are never used, and their product may overflow.
    int64_t stride = shape.num_elements() == 0 ? 0 : 1;
    for (int i = 0; i < shape.dims(); ++i) {
      extents_[i] = shape.dim_size(shape.dims() - 1 - i);
      strides_[i] = stride;
      if (stride != 0) stride *= extents_[i];
    }
  }

  int rank() const { return static_cast<int>(extents_.size()); }

  void Swap(int i, int j) {
    std::swap(extents_[i], extents_[j]);
    std::swap(strides_[i], strides_[j]);
  }

  // Of a dimension that the tensor has.
  int64_t stride(int i) const { return strides_[i]; }

  // Seen as part of a broadcast: dimensions that are missing have extent 1, and those of extent 1
  // have stride 0.
  int64_t BroadcastExtent(int i) const { return i < rank() ? extents_[i] : 1; }
  int64_t BroadcastStride(int i) const { return BroadcastExtent(i) == 1 ? 0 : strides_[i]; }

 private:
  absl::InlinedVector<int64_t, 8> extents_;
  absl::InlinedVector<int64_t, 8> strides_;
};

}  // namespace tf_tvm_ops

#endif  // TF_TVM_OPS_CC_OPS_STRIDED_VIEW_H_
