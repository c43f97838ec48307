#include "graph_passes/fusion.h"

#include <utility>

namespace tf_tvm_ops {

MatMulAttrs Fusion::attrs() const {
  MatMulAttrs attrs;
  attrs.dtype = dtype;
  attrs.lhs = lhs.layout;
  attrs.rhs = rhs.layout;
  attrs.output.length_first = output_length_first;
  attrs.broadcast_batch = broadcast_batch;
  attrs.scale = scale;
  attrs.has_addend = addend.has_value();
  return attrs;
}

void Fusion::Absorb(const tensorflow::Node& node, std::string part) {
  tail = &node;
  absorbed.push_back(&node);
  if (!part.empty()) parts.push_back(std::move(part));
}

std::optional<double> ScalarValue(const tensorflow::Tensor& tensor) {
  if (tensor.NumElements() != 1) return std::nullopt;
  switch (tensor.dtype()) {
    case tensorflow::DT_FLOAT:
      return tensor.flat<float>()(0);
    case tensorflow::DT_DOUBLE:
      return tensor.flat<double>()(0);
    case tensorflow::DT_HALF:
      return static_cast<float>(tensor.flat<Eigen::half>()(0));
    case tensorflow::DT_BFLOAT16:
      return static_cast<float>(tensor.flat<tensorflow::bfloat16>()(0));
    default:
      return std::nullopt;
  }
}

}  // namespace tf_tvm_ops
