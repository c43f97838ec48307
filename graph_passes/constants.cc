#include "graph_passes/constants.h"

#include <cmath>

#include "absl/strings/str_cat.h"

namespace tf_tvm_ops {
namespace {

std::optional<tensorflow::Tensor> Use(GraphView& view, const Slot& slot, Fusion* fusion) {
  std::optional<Constant> constant = view.ConstantAt(slot);
  if (!constant.has_value()) return std::nullopt;
  if (constant->waits) fusion->waits.push_back(slot);
  return std::move(constant->value);
}

}  // namespace

Verdict MultiplyByFactor(GraphView& view, const Slot& use, int max_rank, Fusion* fusion) {
  const bool divides = use.node->type_string() != "Mul";
  if (divides && use.input == 1) return Verdict::NotApplicable();  // the product is the divisor
  const auto constant = Use(view, {use.node, 1 - use.input}, fusion);
  if (!constant.has_value()) return Verdict::Refused(Reason::kNotConstant, use.node->name());
  const std::optional<double> factor = ScalarValue(*constant);
  if (!factor.has_value() || constant->dims() > max_rank) {
    return Verdict::Refused(Reason::kFactor, absl::StrCat("shape ", constant->shape().DebugString(),
                                                          " in ", use.node->name()));
  }
  const double scale = divides ? fusion->scale / *factor : fusion->scale * *factor;
  // Infinities and NaN come about in other ways than stock's.
  if (!std::isfinite(scale) || !std::isfinite(*factor)) {
    return Verdict::Refused(Reason::kFactor, absl::StrCat(*factor, " in ", use.node->name()));
  }
  fusion->scale = scale;
  return Verdict::Taken();
}

std::optional<std::vector<int64_t>> PermutationOf(GraphView& view,
                                                  const tensorflow::Node& transpose,
                                                  Fusion* fusion) {
  const auto value = Use(view, {&transpose, 1}, fusion);
  if (!value.has_value() || value->dims() != 1) return std::nullopt;
  std::vector<int64_t> elements(value->NumElements());
  for (int64_t i = 0; i < value->NumElements(); ++i) {
    if (value->dtype() == tensorflow::DT_INT32) {
      elements[i] = value->flat<int32_t>()(i);
    } else if (value->dtype() == tensorflow::DT_INT64) {
      elements[i] = value->flat<int64_t>()(i);
    } else {
      return std::nullopt;
    }
  }
  return elements;
}

std::optional<double> ScalarValue(const tensorflow::Tensor& tensor) {
  if (tensor.NumElements() != 1) return std::nullopt;
  switch (tensor.dtype()) {
    case tensorflow::DT_FLOAT:
      return tensor.flat<float>()(0);
    case tensorflow::DT_DOUBLE:
      return tensor.flat<double>()(0);
    case tensorflow::DT_HALF:
      return static_cast<float>(tensor.flat<Eigen::half>()(0));
    case tensorflow::DT_BFLOAT16:
      return static_cast<float>(tensor.flat<tensorflow::bfloat16>()(0));
    default:
      return std::nullopt;
  }
}

}  // namespace tf_tvm_ops
