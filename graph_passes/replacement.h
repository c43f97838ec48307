// New nodes for old ones, in a form that Graph, GraphDef and FunctionDef can be changed by.
#ifndef TF_TVM_OPS_GRAPH_PASSES_REPLACEMENT_H_
#define TF_TVM_OPS_GRAPH_PASSES_REPLACEMENT_H_

#include <vector>

#include "absl/status/status.h"
#include "graph_passes/fusion.h"
#include "graph_passes/graph_view.h"
#include "tensorflow/core/framework/function.pb.h"
#include "tensorflow/core/framework/graph.pb.h"
#include "tensorflow/core/framework/node_def.pb.h"
#include "tensorflow/core/graph/graph.h"

namespace tf_tvm_ops {

struct NewInput {
  Slot slot;           // what an old node takes there; or, if `node` is not -1,
  int node = -1;       // output 0 of that new node
  bool waits = false;  // only to be waited for
};

struct NewNode {
  tensorflow::NodeDef def;  // without inputs
  std::vector<NewInput> inputs;
};

struct Replacement {
  const tensorflow::Node* tail = nullptr;  // the last of `nodes` takes over its name and output 0
  std::vector<const tensorflow::Node*> absorbed;  // tail among them
  std::vector<NewNode> nodes;                     // each after those that it takes
};

// What to do with the old nodes that nothing uses any more.
enum class Absorbed : uint8_t {
  kRemove,
  kKeep  // they may be fetched; TensorFlow prunes them where they are not
};

// The node of the op that a fusion is to become, by the name of its tail, without inputs.
tensorflow::NodeDef OpNode(const Fusion& fusion);
Replacement MakeReplacement(GraphView& view, const Fusion& fusion);

// Each carries out replacements planned for the same graph, all of them or, with an error, maybe
// some; so give it a copy where that matters. Control edges into absorbed nodes go to the last new
// node.
absl::Status ApplyToGraph(const std::vector<Replacement>& replacements, tensorflow::Graph* graph);
absl::Status ApplyToGraphDef(const std::vector<Replacement>& replacements, Absorbed absorbed,
                             tensorflow::GraphDef* graph);
absl::Status ApplyToFunctionDef(const std::vector<Replacement>& replacements,
                                tensorflow::FunctionDef* function);

}  // namespace tf_tvm_ops

#endif  // TF_TVM_OPS_GRAPH_PASSES_REPLACEMENT_H_
