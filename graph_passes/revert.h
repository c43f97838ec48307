// Stock ops for the ops of the family.
#ifndef TF_TVM_OPS_GRAPH_PASSES_REVERT_H_
#define TF_TVM_OPS_GRAPH_PASSES_REVERT_H_

#include "graph_passes/graph_view.h"
#include "graph_passes/planner.h"

namespace tf_tvm_ops {

// For each op of the family a BatchMatMulV2 (BatchMatMul where batches are not broadcast), with
// Transpose, Mul and AddV2 as the op's attributes and inputs have it. An outcome whose `op` is
// empty is an op that could not be reverted, because the rank of a length-first tensor is unknown.
RewritePlan PlanReverts(GraphView& view);

}  // namespace tf_tvm_ops

#endif  // TF_TVM_OPS_GRAPH_PASSES_REVERT_H_
