// Ops of the family themselves. After TensorFlow's own passes have folded constants and removed
// what nothing needs, a second look may find more to fuse than the first.
#include "graph_passes/family.h"
#include "graph_passes/rules.h"

namespace tf_tvm_ops {

Verdict MatchOpOfFamily(GraphView&, const tensorflow::Node& node, Fusion* fusion) {
  MatMulAttrs attrs;
  Ranks ranks{};
  if (!ReadOpOfFamily(node, &attrs, &ranks).ok()) return Verdict::NotApplicable();
  fusion->dtype = attrs.dtype;
  fusion->lhs = {{&node, 0}, attrs.lhs, ranks[0]};
  fusion->rhs = {{&node, 1}, attrs.rhs, ranks[1]};
  fusion->broadcast_batch = attrs.broadcast_batch;
  fusion->scale = attrs.scale;
  if (attrs.has_addend) fusion->addend = Slot{&node, 2};
  fusion->output_length_first = attrs.output.length_first;
  fusion->output_rank = ranks[2];
  fusion->Absorb(node, "");
  return Verdict::Taken();
}

}  // namespace tf_tvm_ops
