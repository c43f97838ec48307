// A factor on an operand, as Keras puts it on the queries: the product can be scaled instead.
#include "graph_passes/factor.h"
#include "graph_passes/rules.h"

namespace tf_tvm_ops {

Verdict AbsorbOperandScale(GraphView& view, const tensorflow::Node& producer, FusedOperand* operand,
                           Fusion* fusion) {
  // Whichever input is the constant; two of them are none of this rule's.
  for (const int input : {0, 1}) {
    const Slot use{&producer, input};
    const Verdict verdict = MultiplyByFactor(view, use, &fusion->scale);
    if (!verdict.taken()) {
      if (input == 1 || verdict.reason != Reason::kNotConstant) return verdict;
      continue;
    }
    operand->tensor = use;
    fusion->absorbed.push_back(&producer);
    fusion->parts.push_back(operand == &fusion->lhs ? "lhs scale" : "rhs scale");
    return verdict;
  }
  return Verdict::NotApplicable();
}

}  // namespace tf_tvm_ops
