// A transpose of an operand that only moves length, heads and depth: the op reads it in place.
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "graph_passes/layout.h"
#include "graph_passes/rules.h"

namespace tf_tvm_ops {

Verdict AbsorbOperandTranspose(GraphView& view, const tensorflow::Node& producer,
                               FusedOperand* operand, Fusion* fusion) {
  const auto permutation = view.ConstantVector({&producer, 1});
  if (!permutation.has_value()) return Verdict::Refused(Reason::kNotConstant, producer.name());
  const auto layout = LayoutBeforeTranspose(*permutation, operand->layout);
  if (!layout.has_value()) {
    return Verdict::Refused(
        Reason::kPermutation,
        absl::StrCat("[", absl::StrJoin(*permutation, ", "), "] in ", producer.name()));
  }
  operand->layout = *layout;
  operand->rank = static_cast<int>(permutation->size());
  operand->tensor = {&producer, 0};
  fusion->absorbed.push_back(&producer);
  fusion->parts.push_back(operand == &fusion->lhs ? "lhs transpose" : "rhs transpose");
  return Verdict::Taken();
}

}  // namespace tf_tvm_ops
