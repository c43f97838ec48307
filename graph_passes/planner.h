// What the rewriter would do to a graph, and why not more.
#ifndef TF_TVM_OPS_GRAPH_PASSES_PLANNER_H_
#define TF_TVM_OPS_GRAPH_PASSES_PLANNER_H_

#include <string>
#include <vector>

#include "graph_passes/graph_view.h"
#include "graph_passes/reason.h"
#include "graph_passes/replacement.h"

namespace tf_tvm_ops {

// What became of one product.
struct Outcome {
  std::string product;             // name of its node
  std::string product_op;          // "BatchMatMulV2"
  std::string shapes;              // of its operands, as far as they are known
  std::string op;                  // "TvmBatchMatMulAdd"; empty if it was left alone
  std::string node;                // name of the new node
  std::vector<std::string> parts;  // fused with it: "scale", "rhs transpose", ...
  // Why it was left alone, or why no more was fused; kNone if there was no more.
  Reason reason = Reason::kNone;
  std::string detail;
};

struct RewritePlan {
  std::vector<Replacement> replacements;
  std::vector<Outcome> outcomes;  // one for each product
};

// Whether there is anything to plan for; fast.
bool HasProducts(const tensorflow::Graph& graph);

// Looks at every product of the graph in the order of its nodes.
RewritePlan PlanRewrites(GraphView& view);

}  // namespace tf_tvm_ops

#endif  // TF_TVM_OPS_GRAPH_PASSES_PLANNER_H_
