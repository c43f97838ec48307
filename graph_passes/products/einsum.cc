// Einsum of two operands whose equation is a batched matrix product, as in Keras'
// MultiHeadAttention ("aecd,abcd->acbe", "acbe,aecd->abcd").
#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_split.h"
#include "graph_passes/layout.h"
#include "graph_passes/rules.h"
#include "tensorflow/core/framework/node_def_util.h"

namespace tf_tvm_ops {
namespace {

// The labels of "lhs,rhs->output".
struct Equation {
  std::string lhs, rhs, output;
};

bool HasRepeated(std::string labels) {
  std::sort(labels.begin(), labels.end());
  return std::adjacent_find(labels.begin(), labels.end()) != labels.end();
}

bool Contains(const std::string& labels, char label) {
  return labels.find(label) != std::string::npos;
}

// Also false for "...", which stands for any number of dimensions.
bool AllLetters(const std::string& labels) {
  return std::all_of(labels.begin(), labels.end(), absl::ascii_isalpha);
}

std::optional<Equation> Parse(const std::string& text) {
  const std::vector<std::string> sides = absl::StrSplit(text, "->");
  if (sides.size() != 2) return std::nullopt;
  const std::vector<std::string> operands = absl::StrSplit(sides[0], ',');
  if (operands.size() != 2) return std::nullopt;
  const Equation equation{operands[0], operands[1], sides[1]};
  for (const std::string* labels : {&equation.lhs, &equation.rhs, &equation.output}) {
    if (HasRepeated(*labels) || !AllLetters(*labels)) return std::nullopt;
  }
  return equation;
}

// The labels by what they do in a product of one dimension each for M, N and K.
struct Labels {
  std::string batch;  // as the output orders them
  std::string m, n, k;
};

Labels Classify(const Equation& equation) {
  Labels labels;
  for (const char label : equation.output) {
    const bool in_lhs = Contains(equation.lhs, label), in_rhs = Contains(equation.rhs, label);
    (in_lhs && in_rhs ? labels.batch : in_lhs ? labels.m : labels.n) += label;
  }
  for (const char label : equation.lhs) {
    if (!Contains(equation.output, label)) labels.k += label;
  }
  return labels;
}

// The layout of a tensor with these labels: the batch labels but the last one in their order,
// then heads, rows and columns in some order.
std::optional<MatMulLayout> Layout(const std::string& tensor, const std::string& batch,
                                   const std::string& rows, const std::string& columns) {
  if (tensor.size() != batch.size() + 2) return std::nullopt;
  const size_t outer = batch.size() - 1;
  if (tensor.compare(0, outer, batch, 0, outer) != 0) return std::nullopt;
  Roles roles{};
  for (size_t i = 0; i < roles.size(); ++i) {
    const char label = tensor[outer + i];
    if (label == batch.back()) {
      roles[i] = Role::kHeads;
    } else if (label == rows[0]) {
      roles[i] = Role::kRows;
    } else if (label == columns[0]) {
      roles[i] = Role::kColumns;
    } else {
      return std::nullopt;
    }
  }
  return LayoutOf(roles);
}

}  // namespace

Verdict MatchEinsum(GraphView&, const tensorflow::Node& node, Fusion* fusion) {
  std::string text;
  if (!tensorflow::GetNodeAttr(node.attrs(), "equation", &text).ok()) {
    return Verdict::Refused(Reason::kEquation);
  }
  std::optional<Equation> equation = Parse(text);
  if (!equation.has_value() || node.num_inputs() != 2) {
    return Verdict::Refused(Reason::kEquation, text);
  }
  // The operand that has the last dimension of the output is rhs.
  const bool swapped =
      !equation->output.empty() && !Contains(equation->rhs, equation->output.back());
  if (swapped) std::swap(equation->lhs, equation->rhs);
  const Labels labels = Classify(*equation);
  if (labels.batch.empty()) return Verdict::Refused(Reason::kProjection, text);
  if (labels.m.size() != 1 || labels.n.size() != 1 || labels.k.size() != 1) {
    return Verdict::Refused(Reason::kEquation, text);
  }
  const auto lhs = Layout(equation->lhs, labels.batch, labels.m, labels.k);
  const auto rhs = Layout(equation->rhs, labels.batch, labels.k, labels.n);
  const auto output = Layout(equation->output, labels.batch, labels.m, labels.n);
  if (!lhs.has_value() || !rhs.has_value() || !output.has_value() || output->adjoint) {
    return Verdict::Refused(Reason::kEquation, text);
  }
  fusion->dtype = node.output_type(0);
  const int rank = static_cast<int>(equation->output.size());
  fusion->lhs = {{&node, swapped ? 1 : 0}, *lhs, rank};
  fusion->rhs = {{&node, swapped ? 0 : 1}, *rhs, rank};
  fusion->output_length_first = output->length_first;
  fusion->output_rank = rank;
  fusion->broadcast_batch = false;
  fusion->Absorb(node, "");
  if (lhs->length_first) fusion->parts.push_back("lhs transpose");
  if (rhs->length_first) fusion->parts.push_back("rhs transpose");
  if (output->length_first) fusion->parts.push_back("transpose");
  return Verdict::Taken();
}

}  // namespace tf_tvm_ops
