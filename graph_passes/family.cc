#include "graph_passes/family.h"

#include <cstdlib>
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

bool IsKeptAside(const tensorflow::Node& node) {
  return node.attrs().Find(kKeptAsideAttr) != nullptr;
}

void SetOpOfFamily(const MatMulAttrs& attrs, tensorflow::NodeDef* node) {
  node->set_op(attrs.has_addend ? kAdd : attrs.output.length_first ? kTranspose : kProduct);
  AddNodeAttr("T", attrs.dtype, node);
  AddNodeAttr("adj_x", attrs.lhs.adjoint, node);
  AddNodeAttr("adj_y", attrs.rhs.adjoint, node);
  AddNodeAttr("lhs_length_first", attrs.lhs.length_first, node);
  AddNodeAttr("rhs_length_first", attrs.rhs.length_first, node);
  AddNodeAttr("broadcast_batch", attrs.broadcast_batch, node);
  AddNodeAttr("scale", ScaleText(attrs.scale), node);
  const bool any_rank = attrs.ranks == decltype(attrs.ranks){};
  AddNodeAttr("ranks", any_rank ? absl::Span<const int>() : absl::MakeConstSpan(attrs.ranks), node);
}

absl::Status ReadOpOfFamily(const tensorflow::Node& node, MatMulAttrs* attrs) {
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
  std::vector<int32_t> ranks;
  read("ranks", &ranks);
  if (status.ok()) status = ParseRanks(ranks, &attrs->ranks);
  attrs->has_addend = node.type_string() == kAdd;
  attrs->output.length_first = node.type_string() == kTranspose;
  return status;
}

}  // namespace tf_tvm_ops
