// BatchMatMul, BatchMatMulV2, BatchMatMulV3.
#include "graph_passes/rules.h"
#include "tensorflow/core/framework/node_def_util.h"

namespace tf_tvm_ops {
namespace {

bool Flag(const tensorflow::Node& node, const char* name) {
  bool value = false;
  return tensorflow::TryGetNodeAttr(node.attrs(), name, &value) && value;
}

}  // namespace

Verdict MatchBatchMatMul(GraphView&, const tensorflow::Node& node, Fusion* fusion) {
  if (node.input_type(0) != node.output_type(0) || node.input_type(1) != node.output_type(0)) {
    return Verdict::Refused(Reason::kDType);
  }
  fusion->dtype = node.output_type(0);
  fusion->lhs.tensor = {&node, 0};
  fusion->rhs.tensor = {&node, 1};
  fusion->lhs.layout.adjoint = Flag(node, "adj_x");
  fusion->rhs.layout.adjoint = Flag(node, "adj_y");
  fusion->broadcast_batch = node.type_string() != "BatchMatMul";
  fusion->Absorb(node, "");
  return Verdict::Taken();
}

}  // namespace tf_tvm_ops
