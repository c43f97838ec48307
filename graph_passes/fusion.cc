#include "graph_passes/fusion.h"

#include <utility>

namespace tf_tvm_ops {

MatMulAttrs Fusion::attrs() const {
  MatMulAttrs attrs;
  attrs.dtype = dtype;
  attrs.lhs = lhs.layout;
  attrs.rhs = rhs.layout;
  attrs.output.length_first = output_length_first;
  attrs.ranks = {lhs.rank, rhs.rank, output_rank};
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

}  // namespace tf_tvm_ops
