// The ops of the family as nodes of a graph.
#ifndef TF_TVM_OPS_GRAPH_PASSES_FAMILY_H_
#define TF_TVM_OPS_GRAPH_PASSES_FAMILY_H_

#include <string_view>

#include "absl/status/status.h"
#include "cc/ops/matmul_attrs.h"
#include "tensorflow/core/framework/node_def.pb.h"
#include "tensorflow/core/graph/graph.h"

namespace tf_tvm_ops {

bool IsOpOfFamily(std::string_view op);

// A node that an op took over from but that stays in a stored graph, since it may be fetched, has
// this private attribute: it is not to be taken for a product once more.
constexpr char kKeptAsideAttr[] = "_tf_tvm_ops_kept_aside";
bool IsKeptAside(const tensorflow::Node& node);

// Sets op and attributes of a node.
void SetOpOfFamily(const MatMulAttrs& attrs, tensorflow::NodeDef* node);

// The other way round. InvalidArgument if an attribute is missing or makes no sense.
absl::Status ReadOpOfFamily(const tensorflow::Node& node, MatMulAttrs* attrs);

}  // namespace tf_tvm_ops

#endif  // TF_TVM_OPS_GRAPH_PASSES_FAMILY_H_
