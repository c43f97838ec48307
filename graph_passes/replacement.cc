#include "graph_passes/replacement.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "graph_passes/family.h"
#include "tensorflow/core/framework/node_def_util.h"

namespace tf_tvm_ops {

tensorflow::NodeDef OpNode(const Fusion& fusion) {
  tensorflow::NodeDef node;
  node.set_name(fusion.tail->name());
  node.set_device(fusion.tail->requested_device());
  SetOpOfFamily(fusion.attrs(), {fusion.lhs.rank, fusion.rhs.rank, fusion.output_rank}, &node);
  return node;
}

Replacement MakeReplacement(GraphView& view, const Fusion& fusion) {
  Replacement replacement;
  replacement.tail = fusion.tail;
  replacement.absorbed = fusion.absorbed;
  NewNode op{OpNode(fusion), {{fusion.lhs.tensor}, {fusion.rhs.tensor}}};
  if (fusion.addend.has_value()) {
    NewInput addend{*fusion.addend};
    if (fusion.addend_negated) {
      NewNode negated;
      negated.def.set_name(view.UnusedName(absl::StrCat(fusion.tail->name(), "/negated")));
      negated.def.set_op("Neg");
      negated.def.set_device(fusion.tail->requested_device());
      tensorflow::AddNodeAttr("T", fusion.dtype, &negated.def);
      negated.inputs.push_back(addend);
      replacement.nodes.push_back(std::move(negated));
      addend.node = 0;
    }
    op.inputs.push_back(addend);
  }
  replacement.nodes.push_back(std::move(op));
  return replacement;
}

}  // namespace tf_tvm_ops
