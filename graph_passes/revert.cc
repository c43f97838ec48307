#include "graph_passes/revert.h"

#include <algorithm>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cc/ops/matmul_attrs.h"
#include "graph_passes/family.h"
#include "tensorflow/core/framework/node_def_util.h"
#include "tensorflow/core/framework/tensor.h"

namespace tf_tvm_ops {
namespace {

using tensorflow::DataType;
using tensorflow::Node;
using tensorflow::Tensor;

// The attributes of one op, and the numbers of dimensions that they leave open.
struct Op {
  MatMulAttrs attrs;
  Ranks ranks{};  // lhs, rhs, output
};

bool Read(GraphView& view, const Node& node, Op* op) {
  if (!ReadOpOfFamily(node, &op->attrs, &op->ranks).ok()) return false;
  for (const int operand : {0, 1}) {
    int& rank = op->ranks[operand];
    if (rank == 0) rank = std::max(view.Shape({&node, operand}).dims(), 0);
  }
  if (op->ranks[2] == 0) op->ranks[2] = std::max(op->ranks[0], op->ranks[1]);
  const bool length_first[] = {op->attrs.lhs.length_first, op->attrs.rhs.length_first,
                               op->attrs.output.length_first};
  for (int i = 0; i < 3; ++i) {
    if (length_first[i] && op->ranks[i] < 3) return false;
  }
  return true;
}

// Builds the nodes of one replacement; `NewInput`s are what they give.
class Builder {
 public:
  Builder(GraphView& view, const Node& node, DataType dtype)
      : view_(view), node_(node), dtype_(dtype) {
    replacement_.tail = &node;
    replacement_.absorbed = {&node};
  }

  NewInput Transpose(NewInput x, int rank) {
    Tensor permutation(tensorflow::DT_INT32, {rank});
    auto entries = permutation.flat<int32_t>();
    std::iota(entries.data(), entries.data() + rank, 0);
    std::swap(entries(rank - 3), entries(rank - 2));
    const NewInput perm = Constant(permutation);
    NewNode& node = Add("transpose", "Transpose", {x, perm});
    tensorflow::AddNodeAttr("T", dtype_, &node.def);
    tensorflow::AddNodeAttr("Tperm", tensorflow::DT_INT32, &node.def);
    return Last();
  }

  NewInput Product(NewInput lhs, NewInput rhs, const MatMulAttrs& attrs) {
    const char* op = attrs.broadcast_batch ? "BatchMatMulV2" : "BatchMatMul";
    NewNode& node = Add("product", op, {lhs, rhs});
    tensorflow::AddNodeAttr("T", dtype_, &node.def);
    tensorflow::AddNodeAttr("adj_x", attrs.lhs.adjoint, &node.def);
    tensorflow::AddNodeAttr("adj_y", attrs.rhs.adjoint, &node.def);
    return Last();
  }

  NewInput Scale(NewInput x, double scale) {
    Tensor factor(dtype_, {});
    switch (dtype_) {
      case tensorflow::DT_DOUBLE:
        factor.scalar<double>()() = scale;
        break;
      case tensorflow::DT_HALF:
        factor.scalar<Eigen::half>()() = static_cast<Eigen::half>(static_cast<float>(scale));
        break;
      case tensorflow::DT_BFLOAT16:
        factor.scalar<tensorflow::bfloat16>()() =
            static_cast<tensorflow::bfloat16>(static_cast<float>(scale));
        break;
      default:
        factor.scalar<float>()() = static_cast<float>(scale);
    }
    return Binary("scaled", "Mul", x, Constant(factor));
  }

  NewInput Sum(NewInput x, NewInput addend) { return Binary("sum", "AddV2", x, addend); }

  Replacement Finish() {
    replacement_.nodes.back().def.set_name(node_.name());
    return std::move(replacement_);
  }

 private:
  NewInput Binary(const char* name, const char* op, NewInput x, NewInput y) {
    NewNode& node = Add(name, op, {x, y});
    tensorflow::AddNodeAttr("T", dtype_, &node.def);
    return Last();
  }

  NewInput Constant(const Tensor& value) {
    // It waits for an input of the op, so that inside a loop it is of the loop's frame.
    NewInput first{Slot{&node_, 0}};
    first.waits = true;
    NewNode& node = Add("constant", "Const", {first});
    tensorflow::AddNodeAttr("dtype", value.dtype(), &node.def);
    tensorflow::AddNodeAttr("value", value, &node.def);
    return Last();
  }

  NewNode& Add(const char* name, const char* op, std::vector<NewInput> inputs) {
    NewNode node;
    node.def.set_name(view_.UnusedName(absl::StrCat(node_.name(), "/", name)));
    node.def.set_op(op);
    node.def.set_device(node_.requested_device());
    node.inputs = std::move(inputs);
    replacement_.nodes.push_back(std::move(node));
    return replacement_.nodes.back();
  }

  NewInput Last() const { return {Slot{}, static_cast<int>(replacement_.nodes.size()) - 1}; }

  GraphView& view_;
  const Node& node_;
  const DataType dtype_;
  Replacement replacement_;
};

Replacement StockOps(GraphView& view, const Node& node, const Op& op) {
  const MatMulAttrs& attrs = op.attrs;
  Builder builder(view, node, attrs.dtype);
  NewInput lhs{Slot{&node, 0}}, rhs{Slot{&node, 1}};
  if (attrs.lhs.length_first) lhs = builder.Transpose(lhs, op.ranks[0]);
  if (attrs.rhs.length_first) rhs = builder.Transpose(rhs, op.ranks[1]);
  NewInput result = builder.Product(lhs, rhs, attrs);
  if (attrs.scale != 1) result = builder.Scale(result, attrs.scale);
  if (attrs.has_addend) result = builder.Sum(result, NewInput{Slot{&node, 2}});
  if (attrs.output.length_first) builder.Transpose(result, op.ranks[2]);
  return builder.Finish();
}

}  // namespace

RewritePlan PlanReverts(GraphView& view) {
  RewritePlan plan;
  for (const Node* node : view.graph().op_nodes()) {
    if (!IsOpOfFamily(node->type_string())) continue;
    Outcome outcome;
    outcome.product = node->name();
    outcome.product_op = node->type_string();
    Op op;
    if (Read(view, *node, &op)) {
      plan.replacements.push_back(StockOps(view, *node, op));
      outcome.node = node->name();
      for (const NewNode& added : plan.replacements.back().nodes) {
        outcome.parts.push_back(added.def.op());
      }
      outcome.op = plan.replacements.back().nodes.back().def.op();
    } else {
      outcome.reason = Reason::kRank;
      outcome.detail = "the number of dimensions of a length-first tensor is not known";
    }
    plan.outcomes.push_back(std::move(outcome));
  }
  return plan;
}

}  // namespace tf_tvm_ops
