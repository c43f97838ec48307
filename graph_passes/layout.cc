#include "graph_passes/layout.h"

namespace tf_tvm_ops {
namespace {

// With entries counted from the front, or empty if it is no permutation.
std::vector<int64_t> Normalized(const std::vector<int64_t>& permutation) {
  const auto rank = static_cast<int64_t>(permutation.size());
  std::vector<int64_t> normalized(permutation);
  std::vector<bool> seen(rank);
  for (int64_t& entry : normalized) {
    if (entry < 0) entry += rank;
    if (entry < 0 || entry >= rank || seen[entry]) return {};
    seen[entry] = true;
  }
  return normalized;
}

// What it does to the last three dimensions, if it leaves those before them; a matrix has one
// more in front.
std::optional<std::array<int, 3>> OfLastThree(const std::vector<int64_t>& permutation) {
  std::vector<int64_t> normalized = Normalized(permutation);
  if (normalized.size() == 2) normalized = {0, normalized[0] + 1, normalized[1] + 1};
  if (normalized.size() < 3) return std::nullopt;
  const auto batch = static_cast<int64_t>(normalized.size()) - 3;
  for (int64_t i = 0; i < batch; ++i) {
    if (normalized[i] != i) return std::nullopt;
  }
  std::array<int, 3> last{};
  for (int i = 0; i < 3; ++i) last[i] = static_cast<int>(normalized[batch + i] - batch);
  return last;
}

}  // namespace

Roles RolesOf(const MatMulLayout& layout) {
  const Role first = layout.adjoint ? Role::kColumns : Role::kRows;
  const Role second = layout.adjoint ? Role::kRows : Role::kColumns;
  if (layout.length_first) return {first, Role::kHeads, second};
  return {Role::kHeads, first, second};
}

std::optional<MatMulLayout> LayoutOf(const Roles& roles) {
  for (const bool adjoint : {false, true}) {
    for (const bool length_first : {false, true}) {
      const MatMulLayout layout{adjoint, length_first};
      if (RolesOf(layout) == roles) return layout;
    }
  }
  return std::nullopt;
}

std::optional<MatMulLayout> LayoutBeforeTranspose(const std::vector<int64_t>& permutation,
                                                  const MatMulLayout& layout) {
  const auto last = OfLastThree(permutation);
  if (!last.has_value()) return std::nullopt;
  const Roles after = RolesOf(layout);
  Roles before{};
  for (int i = 0; i < 3; ++i) before[(*last)[i]] = after[i];
  return LayoutOf(before);
}

bool SwapsLengthAndHeads(const std::vector<int64_t>& permutation) {
  return permutation.size() >= 3 && OfLastThree(permutation) == std::array<int, 3>{1, 0, 2};
}

bool SwapsRowsAndColumns(const std::vector<int64_t>& permutation) {
  return OfLastThree(permutation) == std::array<int, 3>{0, 2, 1};
}

}  // namespace tf_tvm_ops
