#include "graph_passes/report.h"

#include <algorithm>
#include <cstddef>
#include <deque>
#include <mutex>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "cc/dispatch/log.h"
#include "graph_passes/control.h"
#include "graph_passes/family.h"

namespace tf_tvm_ops {
namespace {

constexpr size_t kGraphsKept = 1000;

struct Store {
  std::mutex mutex;
  std::deque<GraphReport> reports;
  RewriteCost cost;
};

Store& TheStore() {
  static auto* const store = new Store;  // may be used until the process is gone
  return *store;
}

std::string Field(const std::string& text) {
  return absl::StrReplaceAll(text, {{"\t", " "}, {"\n", " "}});
}

// For people.
std::string Line(const Outcome& outcome) {
  std::string why = outcome.reason == Reason::kNone ? "" : ReasonName(outcome.reason);
  if (!why.empty() && !outcome.detail.empty()) absl::StrAppend(&why, " (", outcome.detail, ")");
  std::string line =
      absl::StrCat("  ", outcome.product, ", ", outcome.product_op, " ", outcome.shapes, ": ");
  if (outcome.op.empty()) return absl::StrCat(line, "left alone: ", why);
  absl::StrAppend(&line, outcome.op);
  if (!outcome.parts.empty()) absl::StrAppend(&line, " with ", absl::StrJoin(outcome.parts, ", "));
  if (!why.empty()) absl::StrAppend(&line, "; no more: ", why);
  return line;
}

// A product that was fused goes by the name of the op that it became when it is seen again.
void Merge(GraphReport news, GraphReport* report) {
  for (Outcome& outcome : news.outcomes) {
    const auto known =
        std::find_if(report->outcomes.begin(), report->outcomes.end(), [&](const Outcome& old) {
          return old.product == outcome.product || old.node == outcome.product;
        });
    if (known == report->outcomes.end()) {
      report->outcomes.push_back(std::move(outcome));
      continue;
    }
    if (IsOpOfFamily(outcome.product_op)) {
      outcome.product = known->product;
      outcome.product_op = known->product_op;
      outcome.parts.insert(outcome.parts.begin(), known->parts.begin(), known->parts.end());
    }
    *known = std::move(outcome);
  }
}

void LogReport(const GraphReport& report) {
  const auto& outcomes = report.outcomes;
  const auto rewritten = std::count_if(outcomes.begin(), outcomes.end(),
                                       [](const Outcome& outcome) { return !outcome.op.empty(); });
  const std::string summary = absl::StrCat("rewriting ", report.graph, ": ", outcomes.size(),
                                           " products, ", rewritten, " rewritten");
  if (RewriteModeInForce() != RewriteMode::kReport) {
    Log(Severity::kInfo, summary);
    return;
  }
  Print(summary);
  for (const Outcome& outcome : outcomes) Print(Line(outcome));
}

}  // namespace

void AddToReport(GraphReport report) {
  if (report.outcomes.empty()) return;
  LogReport(report);
  Store& store = TheStore();
  const std::lock_guard<std::mutex> lock(store.mutex);
  const auto same = std::find_if(store.reports.begin(), store.reports.end(),
                                 [&](const GraphReport& old) { return old.graph == report.graph; });
  if (same != store.reports.end()) {
    Merge(std::move(report), &*same);
    return;
  }
  if (store.reports.size() == kGraphsKept) store.reports.pop_front();
  store.reports.push_back(std::move(report));
}

std::string ReportText() {
  Store& store = TheStore();
  const std::lock_guard<std::mutex> lock(store.mutex);
  return ReportText({store.reports.begin(), store.reports.end()});
}

std::string ReportText(const std::vector<GraphReport>& reports) {
  std::string text;
  for (const GraphReport& report : reports) {
    for (const Outcome& outcome : report.outcomes) {
      const std::string fields[] = {report.graph,
                                    outcome.product,
                                    outcome.product_op,
                                    outcome.shapes,
                                    outcome.op,
                                    outcome.node,
                                    absl::StrJoin(outcome.parts, ", "),
                                    ReasonName(outcome.reason),
                                    outcome.detail};
      for (const std::string& field : fields) {
        absl::StrAppend(&text, &field == fields ? "" : "\t", Field(field));
      }
      text += '\n';
    }
  }
  return text;
}

void AddToCost(const RewriteCost& cost) {
  Store& store = TheStore();
  const std::lock_guard<std::mutex> lock(store.mutex);
  store.cost.graphs += cost.graphs;
  store.cost.nodes += cost.nodes;
  store.cost.seconds += cost.seconds;
}

RewriteCost TotalCost() {
  Store& store = TheStore();
  const std::lock_guard<std::mutex> lock(store.mutex);
  return store.cost;
}

void ClearReport() {
  Store& store = TheStore();
  const std::lock_guard<std::mutex> lock(store.mutex);
  store.reports.clear();
}

}  // namespace tf_tvm_ops
