// What the rewriter did in this process, for people.
#ifndef TF_TVM_OPS_GRAPH_PASSES_REPORT_H_
#define TF_TVM_OPS_GRAPH_PASSES_REPORT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "graph_passes/planner.h"

namespace tf_tvm_ops {

struct GraphReport {
  std::string graph;  // name of the function; or what else it is
  std::vector<Outcome> outcomes;
};

// Keeps the report and logs it. What is known already of a graph of the same name stays, except
// where the new report has another outcome for a product. The last 1,000 graphs are kept.
void AddToReport(GraphReport report);

// The reports kept, in the order of their graphs. One line for each product, with the fields
// graph, product, product_op, shapes, op, node, parts (separated by ", "), reason, detail,
// separated by tabs.
std::string ReportText();
std::string ReportText(const std::vector<GraphReport>& reports);
void ClearReport();

// What looking at graphs, and rewriting them, cost this process.
struct RewriteCost {
  int64_t graphs = 0;
  int64_t nodes = 0;
  double seconds = 0;
};
void AddToCost(const RewriteCost& cost);
RewriteCost TotalCost();

}  // namespace tf_tvm_ops

#endif  // TF_TVM_OPS_GRAPH_PASSES_REPORT_H_
