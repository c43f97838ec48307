// The rewriter as a Grappler optimizer.
#include <exception>
#include <string>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "graph_passes/control.h"
#include "graph_passes/hooks/hooks.h"
#include "graph_passes/planner.h"
#include "graph_passes/report.h"
#include "graph_passes/rules.h"
#include "tensorflow/core/common_runtime/graph_constructor.h"
#include "tensorflow/core/framework/function.h"
#include "tensorflow/core/grappler/grappler_item.h"
#include "tensorflow/core/grappler/optimizers/custom_graph_optimizer.h"
#include "tensorflow/core/grappler/optimizers/custom_graph_optimizer_registry.h"

namespace tf_tvm_ops {
namespace {

using tensorflow::GraphDef;
using tensorflow::grappler::GrapplerItem;

constexpr char kName[] = "tf_tvm_ops";

bool HasProducts(const GraphDef& graph) {
  for (const auto& node : graph.node()) {
    if (FindProductRule(node.op()) != nullptr) return true;
  }
  return false;
}

class GrapplerOptimizer final : public tensorflow::grappler::CustomGraphOptimizer {
 public:
  absl::Status Init(const tensorflow::RewriterConfig_CustomGraphOptimizer*) override {
    return absl::OkStatus();
  }
  std::string name() const override { return kName; }
  bool UsesFunctionLibrary() const override { return false; }

  absl::Status Optimize(tensorflow::grappler::Cluster*, const GrapplerItem& item,
                        GraphDef* optimized) override {
    try {
      return Rewrite(item, optimized);
    } catch (const std::exception& e) {
      return absl::InternalError(absl::StrCat("tf_tvm_ops, rewriting: ", e.what()));
    }
  }

 private:
  static absl::Status Rewrite(const GrapplerItem& item, GraphDef* optimized) {
    // What Grappler takes as "left as it is".
    const absl::Status nothing = absl::AbortedError("nothing to rewrite");
    if (RewriteModeInForce() == RewriteMode::kOff || !HasProducts(item.graph)) return nothing;
    const tensorflow::FunctionLibraryDefinition library(tensorflow::OpRegistry::Global(),
                                                        item.graph.library());
    tensorflow::Graph graph(library);
    tensorflow::GraphConstructorOptions options;
    options.allow_internal_ops = true;
    absl::Status status = ConvertGraphDefToGraph(options, item.graph, &graph);
    if (!status.ok()) return status;
    ViewOptions view_options;
    for (const auto& name : item.NodesToPreserve()) view_options.preserved.insert(name);
    GraphView view(graph, std::move(view_options));
    RewritePlan plan = PlanRewrites(view);
    AddToReport({absl::StrCat(item.id, " (Grappler)"), std::move(plan.outcomes)});
    if (plan.replacements.empty()) return nothing;
    *optimized = item.graph;
    return ApplyToGraphDef(plan.replacements, Absorbed::kRemove, optimized);
  }
};

}  // namespace

void RegisterGrapplerOptimizer() {
  tensorflow::grappler::CustomGraphOptimizerRegistry::RegisterOptimizerOrDie(
      [] { return new GrapplerOptimizer; }, kName);
}

}  // namespace tf_tvm_ops
