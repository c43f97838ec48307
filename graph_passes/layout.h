// Layouts of operands, from permutations and einsum labels.
#ifndef TF_TVM_OPS_GRAPH_PASSES_LAYOUT_H_
#define TF_TVM_OPS_GRAPH_PASSES_LAYOUT_H_

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "cc/ops/matmul_attrs.h"

namespace tf_tvm_ops {

// What the last three dimensions of a tensor mean to the product.
enum class Role : uint8_t { kHeads, kRows, kColumns };
using Roles = std::array<Role, 3>;

Roles RolesOf(const MatMulLayout& layout);
// Nothing if the ops have no layout for it, as when heads come last.
std::optional<MatMulLayout> LayoutOf(const Roles& roles);

// The layout of x if Transpose(x, permutation) has this one; nothing if there is none.
std::optional<MatMulLayout> LayoutBeforeTranspose(const std::vector<int64_t>& permutation,
                                                  const MatMulLayout& layout);

// Whether the permutation, of any rank from 3 up, swaps the dimensions -3 and -2 and nothing else.
bool SwapsLengthAndHeads(const std::vector<int64_t>& permutation);
// The same of the dimensions -2 and -1, for any rank from 2 up.
bool SwapsRowsAndColumns(const std::vector<int64_t>& permutation);

}  // namespace tf_tvm_ops

#endif  // TF_TVM_OPS_GRAPH_PASSES_LAYOUT_H_
