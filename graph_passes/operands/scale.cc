// A factor on an operand, as Keras puts it on the queries: the product can be scaled instead.
#include <algorithm>

#include "graph_passes/constants.h"
#include "graph_passes/rules.h"

namespace tf_tvm_ops {

Verdict AbsorbOperandScale(GraphView& view, const tensorflow::Node& producer, FusedOperand* operand,
                           Fusion* fusion) {
  // Whichever input is the constant. Most nodes of these types are none of this rule's: they have
  // two tensors.
  for (const int input : {0, 1}) {
    const Slot use{&producer, input};
    // Of an operand of unknown rank a constant of shape [1] may make a vector of a scalar.
    const int max_rank = std::max(view.Shape(use).dims(), 0);
    const Verdict verdict = MultiplyByFactor(view, use, max_rank, fusion);
    if (verdict.reason == Reason::kNotConstant) continue;
    if (!verdict.taken()) return verdict;
    operand->tensor = use;
    fusion->absorbed.push_back(&producer);
    fusion->parts.push_back(operand == &fusion->lhs ? "lhs scale" : "rhs scale");
    return verdict;
  }
  return Verdict::NotApplicable();
}

}  // namespace tf_tvm_ops
