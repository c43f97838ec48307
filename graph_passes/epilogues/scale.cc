// A factor after the product.
#include "graph_passes/constants.h"
#include "graph_passes/rules.h"

namespace tf_tvm_ops {

Verdict AbsorbScale(GraphView& view, const Slot& use, Fusion* fusion) {
  if (fusion->addend.has_value()) return Verdict::Refused(Reason::kOrder, use.node->name());
  const Verdict verdict = MultiplyByFactor(view, use, /*max_rank=*/2, fusion);
  if (verdict.taken()) fusion->Absorb(*use.node, "scale");
  return verdict;
}

}  // namespace tf_tvm_ops
