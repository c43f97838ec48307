// The rules of the rewriter, in ordered tables; a rule is a file of products/, operands/ or
// epilogues/.
#ifndef TF_TVM_OPS_GRAPH_PASSES_RULES_H_
#define TF_TVM_OPS_GRAPH_PASSES_RULES_H_

#include <string_view>

#include "graph_passes/fusion.h"
#include "graph_passes/graph_view.h"
#include "graph_passes/reason.h"

namespace tf_tvm_ops {

// Begins a fusion at a product that stock computes: Taken with *fusion filled, or Refused.
using ProductRule = Verdict (*)(GraphView& view, const tensorflow::Node& node, Fusion* fusion);
Verdict MatchBatchMatMul(GraphView& view, const tensorflow::Node& node, Fusion* fusion);
Verdict MatchEinsum(GraphView& view, const tensorflow::Node& node, Fusion* fusion);
Verdict MatchFusedBatchMatMul(GraphView& view, const tensorflow::Node& node, Fusion* fusion);
// An op of the family, of an earlier pass or of the model itself: more may be fused with it.
Verdict MatchOpOfFamily(GraphView& view, const tensorflow::Node& node, Fusion* fusion);

// Goes over a node that gives an operand, and whose output nothing else uses.
using OperandRule = Verdict (*)(GraphView& view, const tensorflow::Node& producer,
                                FusedOperand* operand, Fusion* fusion);
Verdict AbsorbOperandTranspose(GraphView& view, const tensorflow::Node& producer,
                               FusedOperand* operand, Fusion* fusion);
Verdict AbsorbOperandScale(GraphView& view, const tensorflow::Node& producer, FusedOperand* operand,
                           Fusion* fusion);

// Goes over the node that takes the result so far, `use`, which nothing else does.
using EpilogueRule = Verdict (*)(GraphView& view, const Slot& use, Fusion* fusion);
Verdict AbsorbScale(GraphView& view, const Slot& use, Fusion* fusion);
Verdict AbsorbAddend(GraphView& view, const Slot& use, Fusion* fusion);
Verdict AbsorbTranspose(GraphView& view, const Slot& use, Fusion* fusion);
Verdict RefuseCast(GraphView& view, const Slot& use, Fusion* fusion);

template <typename Rule>
struct RuleForOp {
  std::string_view op;
  Rule rule;
};

// The rule for an op; nullptr if there is none.
ProductRule FindProductRule(std::string_view op);
OperandRule FindOperandRule(std::string_view op);
EpilogueRule FindEpilogueRule(std::string_view op);

}  // namespace tf_tvm_ops

#endif  // TF_TVM_OPS_GRAPH_PASSES_RULES_H_
