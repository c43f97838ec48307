#include "graph_passes/family.h"

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <string>
#include <vector>

#include "absl/strings/str_format.h"
#include "absl/types/span.h"
#include "tensorflow/core/framework/node_def_util.h"

namespace tf_tvm_ops {
namespace {

using tensorflow::AddNodeAttr;

constexpr char kProduct[] = "TvmBatchMatMul";
constexpr char kAdd[] = "TvmBatchMatMulAdd";
constexpr char kTranspose[] = "TvmBatchMatMulTranspose";
constexpr char kRanksAttr[] = "_ranks";

// The shortest text that is read as the same number.
std::string ScaleText(double scale) {
  std::string text;
  for (int digits = 1; digits <= 17; ++digits) {
    text = absl::StrFormat("%.*g", digits, scale);
    if (std::strtod(text.c_str(), nullptr) == scale) break;
  }
  return text;
}

}  // namespace

bool IsOpOfFamily(std::string_view op) { return op == kProduct || op == kAdd || op == kTranspose; }

void SetOpOfFamily(const MatMulAttrs& attrs, const Ranks& ranks, tensorflow::NodeDef* node) {
  node->set_op(attrs.has_addend ? kAdd : attrs.output.length_first ? kTranspose : kProduct);
  AddNodeAttr("T", attrs.dtype, node);
  AddNodeAttr("adj_x", attrs.lhs.adjoint, node);
  AddNodeAttr("adj_y", attrs.rhs.adjoint, node);
  AddNodeAttr("lhs_length_first", attrs.lhs.length_first, node);
  AddNodeAttr("rhs_length_first", attrs.rhs.length_first, node);
  AddNodeAttr("broadcast_batch", attrs.broadcast_batch, node);
  AddNodeAttr("scale", ScaleText(attrs.scale), node);
  if (attrs.lhs.length_first || attrs.rhs.length_first || attrs.output.length_first) {
    AddNodeAttr(kRanksAttr, absl::MakeConstSpan(ranks), node);
  }
}

absl::Status ReadOpOfFamily(const tensorflow::Node& node, MatMulAttrs* attrs, Ranks* ranks) {
  const tensorflow::AttrSlice slice = node.attrs();
  absl::Status status;
  const auto read = [&](const char* name, auto* value) {
    if (status.ok()) status = GetNodeAttr(slice, name, value);
  };
  std::string scale;
  read("T", &attrs->dtype);
  read("adj_x", &attrs->lhs.adjoint);
  read("adj_y", &attrs->rhs.adjoint);
  read("lhs_length_first", &attrs->lhs.length_first);
  read("rhs_length_first", &attrs->rhs.length_first);
  read("broadcast_batch", &attrs->broadcast_batch);
  read("scale", &scale);
  if (status.ok()) status = ParseScale(scale, &attrs->scale);
  attrs->has_addend = node.type_string() == kAdd;
  attrs->output.length_first = node.type_string() == kTranspose;
  std::vector<int32_t> known;
  if (tensorflow::TryGetNodeAttr(slice, kRanksAttr, &known) && known.size() == ranks->size()) {
    std::copy(known.begin(), known.end(), ranks->begin());
  }
  return status;
}

}  // namespace tf_tvm_ops
