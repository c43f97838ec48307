#include "graph_passes/offline.h"

#include <memory>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "graph_passes/family.h"
#include "graph_passes/planner.h"
#include "graph_passes/replacement.h"
#include "graph_passes/revert.h"
#include "graph_passes/rules.h"
#include "tensorflow/core/common_runtime/function_body.h"
#include "tensorflow/core/common_runtime/function_def_utils.h"
#include "tensorflow/core/common_runtime/graph_constructor.h"
#include "tensorflow/core/framework/function.h"
#include "tensorflow/core/framework/node_def_util.h"

namespace tf_tvm_ops {
namespace {

using tensorflow::FunctionDef;
using tensorflow::FunctionLibraryDefinition;
using tensorflow::GraphDef;
using tensorflow::NodeDef;
using NodeDefs = google::protobuf::RepeatedPtrField<NodeDef>;

bool Concerns(Direction direction, const std::string& op) {
  return direction == Direction::kRewrite ? FindProductRule(op) != nullptr : IsOpOfFamily(op);
}

bool HasWork(Direction direction, const NodeDefs& nodes) {
  for (const NodeDef& node : nodes) {
    if (Concerns(direction, node.op())) return true;
  }
  return false;
}

// The nodes that others want to be on the same device as.
void AddColocationTargets(const NodeDefs& nodes, absl::flat_hash_set<std::string>* names) {
  constexpr absl::string_view kPrefix = "loc:@";
  for (const NodeDef& node : nodes) {
    const auto found = node.attr().find("_class");
    if (found == node.attr().end()) continue;
    for (const std::string& name : found->second.list().s()) {
      if (absl::StartsWith(name, kPrefix)) names->insert(name.substr(kPrefix.size()));
    }
  }
}

RewritePlan PlanFor(Direction direction, GraphView& view) {
  return direction == Direction::kRewrite ? PlanRewrites(view) : PlanReverts(view);
}

absl::Status RewriteMain(const OfflineOptions& options, const FunctionLibraryDefinition& library,
                         GraphDef* graph_def, std::vector<GraphReport>* reports) {
  if (!HasWork(options.direction, graph_def->node())) return absl::OkStatus();
  tensorflow::Graph graph(library);
  tensorflow::GraphConstructorOptions construction;
  construction.allow_internal_ops = true;
  absl::Status status = ConvertGraphDefToGraph(construction, *graph_def, &graph);
  if (!status.ok()) return status;
  ViewOptions view_options;
  AddColocationTargets(graph_def->node(), &view_options.preserved);
  for (const std::string& name : options.outputs) {
    if (name.empty()) continue;
    view_options.preserved.insert(name.substr(0, name.find(':')));
  }
  GraphView view(graph, std::move(view_options));
  RewritePlan plan = PlanFor(options.direction, view);
  reports->push_back({"graph", std::move(plan.outcomes)});
  const bool keep = options.outputs.empty() && options.direction == Direction::kRewrite;
  return ApplyToGraphDef(plan.replacements, keep ? Absorbed::kKeep : Absorbed::kRemove, graph_def);
}

absl::Status RewriteFunction(Direction direction, const FunctionLibraryDefinition& library,
                             FunctionDef* function, std::vector<GraphReport>* reports) {
  // One with type attributes is not a graph before it is called.
  if (function->signature().attr_size() > 0 || !HasWork(direction, function->node_def())) {
    return absl::OkStatus();
  }
  std::unique_ptr<tensorflow::FunctionBody> body;
  absl::Status status =
      FunctionDefToBodyHelper(*function, tensorflow::AttrSlice(), &library, &body);
  if (!status.ok()) return status;
  ViewOptions view_options;
  AddColocationTargets(function->node_def(), &view_options.preserved);
  for (const auto& [name, node] : function->control_ret()) view_options.preserved.insert(node);
  const auto compiled = function->attr().find("_XlaMustCompile");
  view_options.for_xla = compiled != function->attr().end() && compiled->second.b() &&
                         direction == Direction::kRewrite;
  GraphView view(*body->graph, std::move(view_options));
  RewritePlan plan = PlanFor(direction, view);
  reports->push_back({function->signature().name(), std::move(plan.outcomes)});
  return ApplyToFunctionDef(plan.replacements, function);
}

}  // namespace

absl::Status RewriteGraphDef(const OfflineOptions& options, GraphDef* graph,
                             std::vector<GraphReport>* reports) {
  GraphDef result = *graph;
  std::vector<GraphReport> found;
  const FunctionLibraryDefinition library(tensorflow::OpRegistry::Global(), graph->library());
  absl::Status status = RewriteMain(options, library, &result, &found);
  for (int i = 0; status.ok() && i < graph->library().function_size(); ++i) {
    FunctionDef* function = result.mutable_library()->mutable_function(i);
    status = RewriteFunction(options.direction, library, function, &found);
  }
  if (!status.ok()) return status;
  graph->Swap(&result);
  *reports = std::move(found);
  return status;
}

}  // namespace tf_tvm_ops
