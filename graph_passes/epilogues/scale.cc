// A factor after the product.
#include "graph_passes/factor.h"
#include "graph_passes/rules.h"

namespace tf_tvm_ops {

Verdict AbsorbScale(GraphView& view, const Slot& use, Fusion* fusion) {
  if (fusion->addend.has_value()) return Verdict::Refused(Reason::kOrder, use.node->name());
  const Verdict verdict = MultiplyByFactor(view, use, &fusion->scale);
  if (verdict.taken()) fusion->Absorb(*use.node, "scale");
  return verdict;
}

}  // namespace tf_tvm_ops
