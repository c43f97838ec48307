#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "graph_passes/replacement.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_def.pb.h"

namespace tf_tvm_ops {
namespace {

using tensorflow::Node;
using tensorflow::NodeDef;
using NodeDefs = google::protobuf::RepeatedPtrField<NodeDef>;

// How a list of nodes writes the outputs of its nodes.
enum class Notation : uint8_t {
  kGraph,    // "name", "name:1"
  kFunction  // "name:output:0", and "argument" for the function's own inputs
};

absl::Status OutputName(const NodeDef& node, Notation notation, std::string* name) {
  *name = node.name();
  if (notation == Notation::kGraph) return absl::OkStatus();
  const tensorflow::OpDef* op = nullptr;
  const absl::Status status = tensorflow::OpRegistry::Global()->LookUpOpDef(node.op(), &op);
  if (status.ok()) absl::StrAppend(name, ":", op->output_arg(0).name(), ":0");
  return status;
}

// "^name" for an input as either notation writes it.
std::string WaitFor(absl::string_view input) {
  if (absl::StartsWith(input, "^")) return std::string(input);
  return absl::StrCat("^", input.substr(0, input.find(':')));
}

class Editor {
 public:
  Editor(NodeDefs* nodes, Notation notation) : nodes_(nodes), notation_(notation) {
    for (int i = 0; i < nodes->size(); ++i) index_[nodes->Get(i).name()] = i;
  }

  // Leaves the nodes as they are, apart from that of the tail.
  absl::Status Add(const Replacement& replacement) {
    std::vector<NodeDef> added;
    std::vector<std::string> outputs;
    for (const NewNode& plan : replacement.nodes) {
      NodeDef node = plan.def;
      std::string output;
      absl::Status status = Connect(plan, outputs, &node);
      if (status.ok()) status = OutputName(node, notation_, &output);
      if (!status.ok()) return status;
      added.push_back(std::move(node));
      outputs.push_back(std::move(output));
    }
    absl::flat_hash_set<std::string> waits;
    for (const Node* node : replacement.absorbed) {
      const NodeDef* old = Find(node->name());
      if (old == nullptr) return Missing(node->name());
      for (const std::string& input : old->input()) {
        if (absl::StartsWith(input, "^") && waits.insert(input).second) {
          added.back().add_input(input);
        }
      }
      if (node != replacement.tail) removed_.insert(node->name());
    }
    const NodeDef* tail = Find(replacement.tail->name());
    std::string old_output;
    const absl::Status status = OutputName(*tail, notation_, &old_output);
    if (!status.ok()) return status;
    if (old_output != outputs.back()) renamed_[old_output] = outputs.back();
    new_tails_[index_[tail->name()]] = std::move(added.back());
    added.pop_back();
    for (NodeDef& node : added) extra_.push_back(std::move(node));
    return status;
  }

  // Carries out what was added.
  void Finish(Absorbed absorbed) {
    NodeDefs result;
    result.Reserve(nodes_->size());
    for (int i = 0; i < nodes_->size(); ++i) {
      const auto tail = new_tails_.find(i);
      if (tail != new_tails_.end()) {
        *result.Add() = std::move(tail->second);
      } else if (absorbed == Absorbed::kKeep || !removed_.contains(nodes_->Get(i).name())) {
        *result.Add() = std::move(*nodes_->Mutable(i));
      }
    }
    for (NodeDef& node : extra_) *result.Add() = std::move(node);
    for (NodeDef& node : result) {
      for (std::string& input : *node.mutable_input()) Rename(&input);
    }
    nodes_->Swap(&result);
  }

  void Rename(std::string* output) const {
    const auto renamed = renamed_.find(*output);
    if (renamed != renamed_.end()) *output = renamed->second;
  }

 private:
  static absl::Status Missing(const std::string& name) {
    return absl::InternalError(absl::StrCat("node ", name, " is not in the graph"));
  }

  const NodeDef* Find(const std::string& name) const {
    const auto found = index_.find(name);
    return found == index_.end() ? nullptr : &nodes_->Get(found->second);
  }

  absl::Status Connect(const NewNode& plan, const std::vector<std::string>& outputs,
                       NodeDef* node) const {
    for (const NewInput& input : plan.inputs) {
      std::string source;
      if (input.node >= 0) {
        source = outputs[input.node];
      } else {
        const NodeDef* taker = Find(input.slot.node->name());
        if (taker == nullptr || input.slot.input >= taker->input_size()) {
          return Missing(input.slot.node->name());
        }
        source = taker->input(input.slot.input);
      }
      node->add_input(input.waits ? WaitFor(source) : source);
    }
    return absl::OkStatus();
  }

  NodeDefs* const nodes_;
  const Notation notation_;
  absl::flat_hash_map<std::string, int> index_;
  absl::flat_hash_set<std::string> removed_;
  absl::flat_hash_map<std::string, std::string> renamed_;
  absl::flat_hash_map<int, NodeDef> new_tails_;
  std::vector<NodeDef> extra_;
};

}  // namespace

absl::Status ApplyToGraphDef(const std::vector<Replacement>& replacements, Absorbed absorbed,
                             tensorflow::GraphDef* graph) {
  Editor editor(graph->mutable_node(), Notation::kGraph);
  for (const Replacement& replacement : replacements) {
    const absl::Status status = editor.Add(replacement);
    if (!status.ok()) return status;
  }
  editor.Finish(absorbed);
  return absl::OkStatus();
}

absl::Status ApplyToFunctionDef(const std::vector<Replacement>& replacements,
                                tensorflow::FunctionDef* function) {
  Editor editor(function->mutable_node_def(), Notation::kFunction);
  for (const Replacement& replacement : replacements) {
    const absl::Status status = editor.Add(replacement);
    if (!status.ok()) return status;
  }
  editor.Finish(Absorbed::kRemove);
  for (auto& [name, output] : *function->mutable_ret()) editor.Rename(&output);
  return absl::OkStatus();
}

}  // namespace tf_tvm_ops
