#include "graph_passes/factor.h"

#include <cmath>
#include <optional>

#include "absl/strings/str_cat.h"
#include "graph_passes/fusion.h"

namespace tf_tvm_ops {

Verdict MultiplyByFactor(GraphView& view, const Slot& use, double* scale) {
  const bool divides = use.node->type_string() != "Mul";
  if (divides && use.input == 1) return Verdict::NotApplicable();  // the product is the divisor
  const auto constant = view.Constant({use.node, 1 - use.input});
  if (!constant.has_value()) return Verdict::Refused(Reason::kNotConstant, use.node->name());
  const std::optional<double> factor = ScalarValue(*constant);
  if (!factor.has_value() || constant->dims() > 2) {
    return Verdict::Refused(Reason::kFactor, absl::StrCat("shape ", constant->shape().DebugString(),
                                                          " in ", use.node->name()));
  }
  const double product = divides ? *scale / *factor : *scale * *factor;
  // Infinities and NaN by other ways than stock.
  if (!std::isfinite(product) || !std::isfinite(*factor)) {
    return Verdict::Refused(Reason::kFactor, absl::StrCat(*factor, " in ", use.node->name()));
  }
  *scale = product;
  return Verdict::Taken();
}

}  // namespace tf_tvm_ops
