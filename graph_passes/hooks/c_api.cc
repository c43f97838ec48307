#include "graph_passes/hooks/c_api.h"

#include <cstdlib>
#include <cstring>
#include <exception>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "graph_passes/control.h"
#include "graph_passes/offline.h"
#include "graph_passes/report.h"
#include "tensorflow/core/framework/graph.pb.h"

namespace {

using tf_tvm_ops::RewriteMode;

char* Copy(const std::string& text) {
  auto* copy = static_cast<char*>(std::malloc(text.size() + 1));
  if (copy != nullptr) std::memcpy(copy, text.c_str(), text.size() + 1);
  return copy;
}

std::string Rewrite(const char* serialized, size_t size, const char* outputs, bool revert,
                    std::string* result, std::string* report) {
  tensorflow::GraphDef graph;
  if (!graph.ParseFromArray(serialized, static_cast<int>(size))) {
    return "these bytes are not a GraphDef";
  }
  tf_tvm_ops::OfflineOptions options;
  if (revert) options.direction = tf_tvm_ops::Direction::kRevert;
  options.outputs = absl::StrSplit(outputs, '\n', absl::SkipEmpty());
  std::vector<tf_tvm_ops::GraphReport> reports;
  const absl::Status status = tf_tvm_ops::RewriteGraphDef(options, &graph, &reports);
  if (!status.ok()) return std::string(status.message());
  *report = tf_tvm_ops::ReportText(reports);
  return graph.SerializeToString(result) ? "" : "the new graph is too large";
}

}  // namespace

void TfTvmOpsFree(void* buffer) { std::free(buffer); }

void TfTvmOpsSetRewriteMode(const char* mode) {
  const absl::string_view text = mode;
  if (text == "on") tf_tvm_ops::SetRewriteMode(RewriteMode::kOn);
  if (text == "off") tf_tvm_ops::SetRewriteMode(RewriteMode::kOff);
  if (text == "report") tf_tvm_ops::SetRewriteMode(RewriteMode::kReport);
}

const char* TfTvmOpsRewriteMode() {
  switch (tf_tvm_ops::RewriteModeInForce()) {
    case RewriteMode::kOff:
      return "off";
    case RewriteMode::kReport:
      return "report";
    case RewriteMode::kOn:
      break;
  }
  return "on";
}

char* TfTvmOpsRewriteReport() { return Copy(tf_tvm_ops::ReportText()); }
void TfTvmOpsClearRewriteReport() { tf_tvm_ops::ClearReport(); }

void TfTvmOpsRewriteCost(long long* graphs, long long* nodes, double* seconds) {
  const tf_tvm_ops::RewriteCost cost = tf_tvm_ops::TotalCost();
  *graphs = cost.graphs;
  *nodes = cost.nodes;
  *seconds = cost.seconds;
}

char* TfTvmOpsRewriteReasons() { return Copy(tf_tvm_ops::ReasonsText()); }

char* TfTvmOpsRewriteGraphDef(const char* graph, size_t size, const char* outputs, int revert,
                              char** new_graph, size_t* new_size, char** report) {
  try {
    std::string result, report_text;
    const std::string error = Rewrite(graph, size, outputs, revert != 0, &result, &report_text);
    if (!error.empty()) return Copy(error);
    *new_graph = Copy(result);
    *new_size = result.size();
    *report = Copy(report_text);
    return nullptr;
  } catch (const std::exception& e) {
    return Copy(e.what());
  }
}
