// The automatic rewriting of graphs, at two points.
//
// Functions after placement: devices are assigned, nested functions are inlined, loops are lowered,
// and TensorFlow's own fusions have not been made yet.
//
// Everything before execution, after Grappler. What a session feeds and fetches is known only then,
// and where it runs a SavedModel of TensorFlow 2, functions are inlined only then. In functions,
// with constants folded and dead nodes gone, there may be more to fuse.
#include <chrono>
#include <cstdlib>
#include <exception>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "graph_passes/control.h"
#include "graph_passes/hooks/hooks.h"
#include "graph_passes/planner.h"
#include "graph_passes/report.h"
#include "tensorflow/core/common_runtime/optimization_registry.h"
#include "tensorflow/core/framework/function.pb.h"
#include "tensorflow/core/public/session_options.h"

namespace tf_tvm_ops {
namespace {

using tensorflow::GraphOptimizationPassOptions;
using tensorflow::OptimizationPassRegistry;
using tensorflow::OptimizerOptions;

// Whether XLA forms clusters by itself, as tf.config.optimizer.set_jit and TF_XLA_FLAGS ask for.
bool ClustersForXla(const GraphOptimizationPassOptions& options) {
  const char* flags = std::getenv("TF_XLA_FLAGS");
  if (flags != nullptr) {
    const absl::string_view text = flags;
    for (const char* level : {"tf_xla_auto_jit=1", "tf_xla_auto_jit=2", "tf_xla_auto_jit=fusible",
                              "tf_xla_auto_jit=single-gpu"}) {
      if (absl::StrContains(text, level)) return true;
    }
  }
  if (options.session_options == nullptr) return false;
  const auto level =
      options.session_options->config.graph_options().optimizer_options().global_jit_level();
  return level == OptimizerOptions::ON_1 || level == OptimizerOptions::ON_2;
}

std::string GraphName(const GraphOptimizationPassOptions& options) {
  if (options.function_def != nullptr) return options.function_def->signature().name();
  if (options.is_function_graph) return "a function";
  return options.session_handle.empty() ? "graph of a session"
                                        : absl::StrCat("graph of session ", options.session_handle);
}

// TensorFlow runs an eager op as a function of one node. There is nothing to fuse it with.
bool IsEagerOp(const GraphOptimizationPassOptions& options) {
  return options.function_def != nullptr &&
         absl::StartsWith(options.function_def->signature().name(), "__wrapped__");
}

bool CompiledByXla(const GraphOptimizationPassOptions& options) {
  if (options.function_def == nullptr) return false;
  const auto& attrs = options.function_def->attr();
  const auto found = attrs.find("_XlaMustCompile");
  return found != attrs.end() && found->second.b();
}

class AutomaticPass final : public tensorflow::GraphOptimizationPass {
 public:
  explicit AutomaticPass(OptimizationPassRegistry::Grouping point) : point_(point) {}

  absl::Status Run(const GraphOptimizationPassOptions& options) override {
    if (RewriteModeInForce() == RewriteMode::kOff || options.graph == nullptr ||
        *options.graph == nullptr || IsEagerOp(options) ||
        (point_ == OptimizationPassRegistry::POST_PLACEMENT && !options.is_function_graph)) {
      return absl::OkStatus();
    }
    try {
      const auto start = std::chrono::steady_clock::now();
      const int nodes = (*options.graph)->num_op_nodes();
      const absl::Status status = Rewrite(options);
      const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
      AddToCost({1, nodes, taken.count()});
      return status;
    } catch (const std::exception& e) {
      return absl::InternalError(absl::StrCat("tf_tvm_ops, rewriting: ", e.what()));
    }
  }

 private:
  static absl::Status Rewrite(const GraphOptimizationPassOptions& options) {
    tensorflow::Graph* graph = options.graph->get();
    if (!HasProducts(*graph)) return absl::OkStatus();
    ViewOptions view_options;
    view_options.for_xla = CompiledByXla(options) || ClustersForXla(options);
    GraphView view(*graph, view_options);
    RewritePlan plan = PlanRewrites(view);
    AddToReport({GraphName(options), std::move(plan.outcomes)});
    return ApplyToGraph(plan.replacements, graph);
  }

  const OptimizationPassRegistry::Grouping point_;
};

}  // namespace

void RegisterAutomaticPasses() {
  for (const auto point : {OptimizationPassRegistry::POST_PLACEMENT,
                           OptimizationPassRegistry::POST_REWRITE_FOR_EXEC}) {
    auto pass = std::make_unique<AutomaticPass>(point);
    pass->set_name("tf_tvm_ops");
    // After the passes of TensorFlow itself, which have lower numbers.
    OptimizationPassRegistry::Global()->Register(point, 100, std::move(pass));
  }
}

}  // namespace tf_tvm_ops
