// Rewriting of graphs that are stored, with the functions in their library.
#ifndef TF_TVM_OPS_GRAPH_PASSES_OFFLINE_H_
#define TF_TVM_OPS_GRAPH_PASSES_OFFLINE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "graph_passes/report.h"
#include "tensorflow/core/framework/graph.pb.h"

namespace tf_tvm_ops {

enum class Direction : uint8_t { kRewrite, kRevert };

struct OfflineOptions {
  Direction direction = Direction::kRewrite;
  // Names of the nodes of the graph itself that will be fetched. If there are none, every node may
  // be, and none is removed.
  std::vector<std::string> outputs;
};

// Changes the graph and every function of its library, or, with an error, none of them.
absl::Status RewriteGraphDef(const OfflineOptions& options, tensorflow::GraphDef* graph,
                             std::vector<GraphReport>* reports);

}  // namespace tf_tvm_ops

#endif  // TF_TVM_OPS_GRAPH_PASSES_OFFLINE_H_
