// What TensorFlow's remapper makes of BatchMatMulV2 with Mul and Add.
#include <cmath>
#include <string>
#include <vector>

#include "graph_passes/factor.h"
#include "graph_passes/rules.h"
#include "tensorflow/core/framework/node_def_util.h"

namespace tf_tvm_ops {

Verdict MatchFusedBatchMatMul(GraphView& view, const tensorflow::Node& node, Fusion* fusion) {
  std::vector<std::string> fused_ops;
  if (!tensorflow::GetNodeAttr(node.attrs(), "fused_ops", &fused_ops).ok() ||
      static_cast<int>(fused_ops.size()) != node.num_inputs() - 2) {
    return Verdict::Refused(Reason::kFusedOps);
  }
  const Verdict matched = MatchBatchMatMul(view, node, fusion);
  if (!matched.taken()) return matched;
  for (size_t i = 0; i < fused_ops.size(); ++i) {
    const Slot argument{&node, 2 + static_cast<int>(i)};
    if (fused_ops[i] == "Mul" && !fusion->addend.has_value()) {
      const auto constant = view.Constant(argument);
      if (!constant.has_value()) return Verdict::Refused(Reason::kNotConstant);
      const auto factor = ScalarValue(*constant);
      if (!factor.has_value() || !std::isfinite(*factor)) return Verdict::Refused(Reason::kFactor);
      fusion->scale *= *factor;
      fusion->parts.push_back("scale");
    } else if (fused_ops[i] == "Add" && !fusion->addend.has_value()) {
      fusion->addend = argument;
      fusion->parts.push_back("addend");
    } else {
      return Verdict::Refused(Reason::kFusedOps, fused_ops[i]);
    }
  }
  return matched;
}

}  // namespace tf_tvm_ops
