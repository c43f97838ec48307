// Factors beside a product: Mul and RealDiv by a constant.
#ifndef TF_TVM_OPS_GRAPH_PASSES_FACTOR_H_
#define TF_TVM_OPS_GRAPH_PASSES_FACTOR_H_

#include "graph_passes/graph_view.h"
#include "graph_passes/reason.h"

namespace tf_tvm_ops {

// Taken if the node multiplies its input `use.input` by one finite number, with *scale multiplied
// by it. A constant of more dimensions than a matrix would add dimensions, so it is refused.
Verdict MultiplyByFactor(GraphView& view, const Slot& use, double* scale);

}  // namespace tf_tvm_ops

#endif  // TF_TVM_OPS_GRAPH_PASSES_FACTOR_H_
