// A graph as the rewriter looks at it: who uses a tensor, what shape it has, what constant it is.
#ifndef TF_TVM_OPS_GRAPH_PASSES_GRAPH_VIEW_H_
#define TF_TVM_OPS_GRAPH_PASSES_GRAPH_VIEW_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "graph_passes/reason.h"
#include "tensorflow/core/common_runtime/shape_refiner.h"
#include "tensorflow/core/framework/tensor.h"
#include "tensorflow/core/framework/tensor_shape.h"
#include "tensorflow/core/graph/graph.h"

namespace tf_tvm_ops {

// A tensor, named by a place that takes it: input `input` of `node`. Unlike the name of its
// producer, that holds for Graph, GraphDef and FunctionDef alike.
struct Slot {
  const tensorflow::Node* node = nullptr;
  int input = 0;
};

struct ViewOptions {
  // Names of nodes that have to stay, fetched ones among them. Nodes that feed a _Retval need not
  // be named.
  absl::flat_hash_set<std::string> preserved;
  bool for_xla = false;  // XLA will compile the graph, or what it likes of it
};

// Not for use after the graph changed.
class GraphView {
 public:
  GraphView(const tensorflow::Graph& graph, ViewOptions options);

  const tensorflow::Graph& graph() const { return graph_; }
  bool IsPreserved(const tensorflow::Node& node) const {
    return options_.preserved.contains(node.name());
  }
  bool for_xla() const { return options_.for_xla; }

  // The node and output that give the tensor; null on a malformed graph.
  const tensorflow::Node* Producer(const Slot& slot, int* output = nullptr) const;

  // The same tensor, as far up as only Identity nodes without control edges into them lie between.
  Slot BehindIdentities(Slot slot) const;

  // Refused if output 0 of the node is used by other than one input of one node, if something
  // waits for the node, or if it has to be preserved; else Taken and the only use.
  Verdict OnlyUse(const tensorflow::Node& node, Slot* use) const;

  // Whether the node passes its input on and does nothing else, such as waiting.
  static bool IsPlainIdentity(const tensorflow::Node& node);

  // `name`, with a number after it if a node has it already.
  std::string UnusedName(std::string name);

  // The shape as far as it is known.
  tensorflow::PartialTensorShape Shape(const Slot& slot);

  // The value, if it follows from constants and known shapes, and is small.
  std::optional<tensorflow::Tensor> Constant(const Slot& slot);
  std::optional<std::vector<int64_t>> ConstantVector(const Slot& slot);

 private:
  // Infers the shapes of the node and of everything that it depends on.
  void Infer(const tensorflow::Node& node);

  const tensorflow::Graph& graph_;
  const ViewOptions options_;
  std::unique_ptr<tensorflow::ShapeRefiner> refiner_;  // made when first needed
  std::vector<bool> inferred_;                         // by node id
  absl::flat_hash_set<std::string> names_;             // of all nodes, when first needed
};

}  // namespace tf_tvm_ops

#endif  // TF_TVM_OPS_GRAPH_PASSES_GRAPH_VIEW_H_
