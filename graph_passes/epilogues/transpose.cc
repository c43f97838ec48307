// A transpose after the product: one that puts length before heads, or one of the matrices.
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "graph_passes/layout.h"
#include "graph_passes/rules.h"

namespace tf_tvm_ops {

Verdict AbsorbTranspose(GraphView& view, const Slot& use, Fusion* fusion) {
  if (use.input != 0) return Verdict::NotApplicable();
  const auto permutation = view.ConstantVector({use.node, 1});
  if (!permutation.has_value()) return Verdict::Refused(Reason::kNotConstant, use.node->name());
  const bool of_matrices = SwapsRowsAndColumns(*permutation);
  if (!of_matrices && !SwapsLengthAndHeads(*permutation)) {
    return Verdict::Refused(
        Reason::kPermutation,
        absl::StrCat("[", absl::StrJoin(*permutation, ", "), "] in ", use.node->name()));
  }
  if (fusion->addend.has_value() || fusion->output_length_first) {
    return Verdict::Refused(Reason::kOrder, use.node->name());
  }
  if (of_matrices) {
    // (A B)^T = B^T A^T
    std::swap(fusion->lhs, fusion->rhs);
    fusion->lhs.layout.adjoint = !fusion->lhs.layout.adjoint;
    fusion->rhs.layout.adjoint = !fusion->rhs.layout.adjoint;
    fusion->Absorb(*use.node, "matrix transpose");
    return Verdict::Taken();
  }
  fusion->output_length_first = true;
  fusion->output_rank = static_cast<int>(permutation->size());
  fusion->Absorb(*use.node, "transpose");
  return Verdict::Taken();
}

}  // namespace tf_tvm_ops
