#include <utility>

#include "absl/container/flat_hash_set.h"
#include "graph_passes/replacement.h"
#include "tensorflow/core/graph/algorithm.h"

namespace tf_tvm_ops {
namespace {

using tensorflow::Edge;
using tensorflow::Graph;
using tensorflow::Node;

// What has to be done before any of the nodes is.
absl::flat_hash_set<Node*> ControlInputs(const std::vector<const Node*>& nodes) {
  absl::flat_hash_set<Node*> sources;
  for (const Node* node : nodes) {
    for (const Edge* edge : node->in_edges()) {
      if (edge->IsControlEdge() && !edge->src()->IsSource()) sources.insert(edge->src());
    }
  }
  return sources;
}

absl::Status Connect(const NewNode& plan, const std::vector<Node*>& added, Node* node,
                     Graph* graph) {
  int next = 0;
  for (const NewInput& input : plan.inputs) {
    Node* source = input.node >= 0 ? added[input.node] : nullptr;
    int output = 0;
    if (source == nullptr) {
      const Edge* edge = nullptr;
      const absl::Status status = input.slot.node->input_edge(input.slot.input, &edge);
      if (!status.ok()) return status;
      source = edge->src();
      output = edge->src_output();
    }
    if (input.waits) {
      if (!source->IsSource()) graph->AddControlEdge(source, node);
    } else {
      graph->AddEdge(source, output, node, next++);
    }
  }
  return absl::OkStatus();
}

// Gives everything that goes out of `from` to `to`.
void MoveOutEdges(Node* from, Node* to, Graph* graph) {
  const std::vector<const Edge*> edges(from->out_edges().begin(), from->out_edges().end());
  for (const Edge* edge : edges) {
    Node* target = edge->dst();
    const int output = edge->src_output(), input = edge->dst_input();
    if (target->IsSink()) continue;
    graph->RemoveEdge(edge);
    graph->AddEdge(to, output, target, input);
  }
}

absl::Status Apply(const Replacement& replacement, Graph* graph) {
  std::vector<Node*> added;
  for (const NewNode& plan : replacement.nodes) {
    absl::Status status;
    Node* node = graph->AddNode(plan.def, &status);
    if (status.ok()) {
      node->set_assigned_device_name(replacement.tail->assigned_device_name());
      status = Connect(plan, added, node, graph);
    }
    if (!status.ok()) return status;
    added.push_back(node);
  }
  for (Node* source : ControlInputs(replacement.absorbed)) {
    graph->AddControlEdge(source, added.back());
  }
  MoveOutEdges(graph->FindNodeId(replacement.tail->id()), added.back(), graph);
  for (const Node* node : replacement.absorbed) graph->RemoveNode(graph->FindNodeId(node->id()));
  return absl::OkStatus();
}

}  // namespace

absl::Status ApplyToGraph(const std::vector<Replacement>& replacements, Graph* graph) {
  for (const Replacement& replacement : replacements) {
    const absl::Status status = Apply(replacement, graph);
    if (!status.ok()) return status;
  }
  if (!replacements.empty()) tensorflow::FixupSourceAndSinkEdges(graph);
  return absl::OkStatus();
}

}  // namespace tf_tvm_ops
