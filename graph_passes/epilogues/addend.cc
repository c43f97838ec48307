// A mask or bias that is added to the product, or one from the other.
#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "graph_passes/rules.h"
#include "tensorflow/core/framework/node_def_util.h"

namespace tf_tvm_ops {
namespace {

using tensorflow::PartialTensorShape;

// Whether it is known that the sum is larger than the product.
bool Enlarges(const PartialTensorShape& product, const PartialTensorShape& addend) {
  if (product.unknown_rank() || addend.unknown_rank()) return false;
  if (addend.dims() > product.dims()) return true;
  for (int i = 1; i <= addend.dims(); ++i) {
    const int64_t added = addend.dim_size(addend.dims() - i);
    if (product.dim_size(product.dims() - i) == 1 && added > 1) return true;
  }
  return false;
}

// Whether stock and the op take the same addends.
Verdict SameBroadcast(const Slot& use, const PartialTensorShape& product,
                      const PartialTensorShape& addend) {
  const std::string& op = use.node->type_string();
  const auto refused = [&] {
    return Verdict::Refused(Reason::kBroadcast,
                            absl::StrCat(product.DebugString(), " and ", addend.DebugString(),
                                         " in ", use.node->name()));
  };
  if (op == "AddN") {  // does not broadcast
    return product.IsFullyDefined() && addend.IsFullyDefined() && product.IsIdenticalTo(addend)
               ? Verdict::Taken()
               : refused();
  }
  if (op == "BiasAdd") {  // one value for each column, never one for all
    std::string format;
    const bool columns = tensorflow::GetNodeAttr(use.node->attrs(), "data_format", &format).ok() &&
                         format == "NHWC" && use.input == 0;
    return columns && addend.dims() == 1 && addend.dim_size(0) > 1 ? Verdict::Taken() : refused();
  }
  return Enlarges(product, addend) ? refused() : Verdict::Taken();
}

}  // namespace

Verdict AbsorbAddend(GraphView& view, const Slot& use, Fusion* fusion) {
  const std::string& op = use.node->type_string();
  if (op == "AddN" && use.node->num_inputs() != 2) return Verdict::NotApplicable();
  const Slot addend{use.node, 1 - use.input};
  if (fusion->addend.has_value() || fusion->output_length_first) {
    return Verdict::Refused(Reason::kOrder, use.node->name());
  }
  Verdict verdict = SameBroadcast(use, view.Shape(use), view.Shape(addend));
  if (!verdict.taken()) return verdict;
  fusion->addend = addend;
  if (op == "Sub") {
    // product - addend, or addend - product.
    fusion->addend_negated = use.input == 0;
    if (use.input == 1) fusion->scale = -fusion->scale;
  }
  fusion->Absorb(*use.node, "addend");
  return verdict;
}

}  // namespace tf_tvm_ops
