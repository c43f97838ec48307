// A Cast after the product: what follows is computed in another dtype, which fusing would undo.
#include "graph_passes/rules.h"

namespace tf_tvm_ops {

Verdict RefuseCast(GraphView&, const Slot& use, Fusion*) {
  return Verdict::Refused(Reason::kCast, use.node->name());
}

}  // namespace tf_tvm_ops
