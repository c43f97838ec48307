// Constants beside a product that become attributes of the op: factors and permutations.
//
// What computes such a constant may have to wait for something, or be skipped with its branch. The
// op then waits for it, although it does not need the value any more.
#ifndef TF_TVM_OPS_GRAPH_PASSES_CONSTANTS_H_
#define TF_TVM_OPS_GRAPH_PASSES_CONSTANTS_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "graph_passes/fusion.h"
#include "graph_passes/graph_view.h"
#include "graph_passes/reason.h"

namespace tf_tvm_ops {

// Taken if the node multiplies its input `use.input` by one finite number, with fusion->scale
// multiplied by it. A constant of more dimensions than `max_rank` could add dimensions, so it is
// refused.
Verdict MultiplyByFactor(GraphView& view, const Slot& use, int max_rank, Fusion* fusion);

// That of a Transpose, if it is known.
std::optional<std::vector<int64_t>> PermutationOf(GraphView& view,
                                                  const tensorflow::Node& transpose,
                                                  Fusion* fusion);

// The value of a constant with one element; nothing for other dtypes than floating-point ones.
std::optional<double> ScalarValue(const tensorflow::Tensor& tensor);

}  // namespace tf_tvm_ops

#endif  // TF_TVM_OPS_GRAPH_PASSES_CONSTANTS_H_
