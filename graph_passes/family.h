// The ops of the family as nodes of a graph.
#ifndef TF_TVM_OPS_GRAPH_PASSES_FAMILY_H_
#define TF_TVM_OPS_GRAPH_PASSES_FAMILY_H_

#include <array>
#include <cstdint>
#include <string_view>

#include "absl/status/status.h"
#include "cc/ops/matmul_attrs.h"
#include "tensorflow/core/framework/node_def.pb.h"
#include "tensorflow/core/graph/graph.h"

namespace tf_tvm_ops {

// Numbers of dimensions of lhs, rhs and output, 0 where not known. A node that has a length-first
// tensor keeps them in a private attribute: what gives the stock ops back needs them.
using Ranks = std::array<int, 3>;

bool IsOpOfFamily(std::string_view op);

// Sets op and attributes of a node.
void SetOpOfFamily(const MatMulAttrs& attrs, const Ranks& ranks, tensorflow::NodeDef* node);

// The other way round. InvalidArgument if an attribute is missing or makes no sense.
absl::Status ReadOpOfFamily(const tensorflow::Node& node, MatMulAttrs* attrs, Ranks* ranks);

}  // namespace tf_tvm_ops

#endif  // TF_TVM_OPS_GRAPH_PASSES_FAMILY_H_
