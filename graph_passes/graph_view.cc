#include "graph_passes/graph_view.h"

#include "absl/strings/str_cat.h"
#include "tensorflow/core/common_runtime/eval_const_tensor.h"
#include "tensorflow/core/framework/types.h"

namespace tf_tvm_ops {
namespace {

using tensorflow::Edge;
using tensorflow::Node;
using tensorflow::PartialTensorShape;
using tensorflow::Tensor;

// Factors and permutations are smaller; larger constants are not worth computing here.
constexpr int64_t kMaxConstantElements = 64;
constexpr size_t kMaxConstantNodes = 32;

// From what the body of a loop hands on to what it was handed, at most.
constexpr int kMaxInvariantSteps = 8;

bool HasControlInput(const Node& node) {
  for (const Edge* edge : node.in_edges()) {
    if (edge->IsControlEdge() && !edge->src()->IsSource()) return true;
  }
  return false;
}

}  // namespace

GraphView::GraphView(const tensorflow::Graph& graph, ViewOptions options)
    : graph_(graph), options_(std::move(options)) {}

const Node* GraphView::Producer(const Slot& slot, int* output) const {
  const Edge* edge = nullptr;
  if (!slot.node->input_edge(slot.input, &edge).ok() || edge == nullptr) return nullptr;
  if (output != nullptr) *output = edge->src_output();
  return edge->src();
}

bool GraphView::IsPlainIdentity(const Node& node) {
  if (node.type_string() != "Identity" || HasControlInput(node)) return false;
  const Edge* edge = nullptr;
  // Of a variable of TensorFlow 1 it reads the value that the variable has by then.
  return node.input_edge(0, &edge).ok() &&
         !tensorflow::IsRefType(edge->src()->output_type(edge->src_output()));
}

const Node* GraphView::EnterOfInvariant(const Node& merge) {
  if (!merge.IsMerge() || merge.num_inputs() != 2) return nullptr;
  const Node* enter = nullptr;
  const Node* back = nullptr;
  for (const Edge* edge : merge.in_edges()) {
    if (edge->src()->IsEnter()) enter = edge->src();
    if (edge->src()->IsNextIteration()) back = edge->src();
  }
  for (int i = 0; back != nullptr && i < kMaxInvariantSteps; ++i) {
    const Edge* edge = nullptr;
    if (!back->input_edge(0, &edge).ok()) return nullptr;
    back = edge->src();
    if (back == &merge) return enter;
    if (!back->IsIdentity() && !back->IsSwitch()) return nullptr;
  }
  return nullptr;
}

std::string GraphView::UnusedName(std::string name) {
  if (names_.empty()) {
    for (const Node* node : graph_.nodes()) names_.insert(node->name());
  }
  std::string candidate = name;
  for (int i = 1; !names_.insert(candidate).second; ++i) candidate = absl::StrCat(name, "_", i);
  return candidate;
}

Verdict GraphView::OnlyUse(const Node& node, Slot* use) const {
  if (IsPreserved(node)) return Verdict::Refused(Reason::kFetched, node.name());
  const Edge* only = nullptr;
  for (const Edge* edge : node.out_edges()) {
    if (edge->IsControlEdge()) {
      if (edge->dst()->IsSink()) continue;
      return Verdict::Refused(Reason::kControlEdge, edge->dst()->name());
    }
    if (only != nullptr) {
      return Verdict::Refused(Reason::kConsumers,
                              absl::StrCat(only->dst()->name(), ", ", edge->dst()->name()));
    }
    only = edge;
  }
  if (only == nullptr) return Verdict::NotApplicable();
  *use = {only->dst(), only->dst_input()};
  return Verdict::Taken();
}

void GraphView::Infer(const Node& node) {
  if (refiner_ == nullptr) {
    refiner_ = std::make_unique<tensorflow::ShapeRefiner>(graph_.versions(), graph_.op_registry());
    refiner_->set_require_shape_inference_fns(false);
    // Running constant subgraphs would take most of the time; ranks and depths are known without.
    refiner_->set_disable_constant_propagation(true);
    inferred_.resize(graph_.num_node_ids());
  }
  // Depth first, inputs before their node, but not back around a loop. What is left out is taken as
  // unknown by the refiner, as is the output of a node for which it fails.
  struct Visit {
    const Node* node;
    bool inputs_done;
  };
  std::vector<Visit> stack{{&node, false}};
  while (!stack.empty()) {
    const Visit visit = stack.back();
    stack.pop_back();
    if (visit.inputs_done) {
      refiner_->AddNode(visit.node).IgnoreError();
      // Inference forgets the shape of what enters a loop, since the loop may change it.
      const Node* enter = EnterOfInvariant(*visit.node);
      const auto* known = enter == nullptr ? nullptr : refiner_->GetContext(enter);
      if (known != nullptr) refiner_->SetShape(visit.node, 0, known->input(0)).IgnoreError();
      continue;
    }
    if (inferred_[visit.node->id()]) continue;
    inferred_[visit.node->id()] = true;
    stack.push_back({visit.node, true});
    for (const Edge* edge : visit.node->in_edges()) {
      if (edge->IsControlEdge() || edge->src()->IsNextIteration()) continue;
      stack.push_back({edge->src(), false});
    }
  }
}

PartialTensorShape GraphView::Shape(const Slot& slot) {
  int output = 0;
  const Node* producer = Producer(slot, &output);
  return producer == nullptr ? PartialTensorShape() : ShapeOf(*producer, output);
}

PartialTensorShape GraphView::ShapeOf(const Node& node, int output) {
  PartialTensorShape shape;
  Infer(node);
  auto* context = refiner_->GetContext(&node);
  if (context == nullptr || output >= context->num_outputs()) return shape;
  const auto handle = context->output(output);
  if (!context->RankKnown(handle)) return shape;
  std::vector<int64_t> sizes(context->Rank(handle));
  for (size_t i = 0; i < sizes.size(); ++i) {
    const auto dim = context->Dim(handle, static_cast<int64_t>(i));
    sizes[i] = context->ValueKnown(dim) ? context->Value(dim) : -1;
  }
  PartialTensorShape::MakePartialShape(sizes.data(), static_cast<int>(sizes.size()), &shape)
      .IgnoreError();
  return shape;
}

bool GraphView::FollowsFromConstants(const Node& node, bool* waits) {
  std::vector<const Node*> found{&node};
  for (size_t i = 0; i < found.size(); ++i) {
    const Node* each = found[i];
    if (found.size() > kMaxConstantNodes || options_.fed.contains(each->name())) return false;
    const std::string& op = each->type_string();
    const bool of_shape = op == "Shape" || op == "Size" || op == "Rank";
    *waits |= HasControlInput(*each) || of_shape || each->IsControlFlow();
    if (of_shape) continue;  // its input's value does not matter
    const PartialTensorShape shape = ShapeOf(*each, 0);
    if (!shape.IsFullyDefined() || shape.num_elements() > kMaxConstantElements) return false;
    for (const Edge* edge : each->in_edges()) {
      if (!edge->IsControlEdge()) found.push_back(edge->src());
    }
  }
  return true;
}

std::optional<Constant> GraphView::ConstantAt(const Slot& slot) {
  const Node* producer = Producer(slot);
  Constant constant;
  if (producer == nullptr || !FollowsFromConstants(*producer, &constant.waits)) {
    return std::nullopt;
  }
  // A loop's Enter keeps the value; TensorFlow's evaluation stops at it.
  int output = 0;
  Slot source = slot;
  for (producer = Producer(source, &output);
       producer != nullptr && (producer->IsEnter() || producer->IsIdentity());
       producer = Producer(source, &output)) {
    source = {producer, 0};
  }
  if (producer == nullptr) return std::nullopt;
  auto value = tensorflow::EvaluateConstantTensor(
      *producer, output, *refiner_, [](const Node&, int) { return std::optional<Tensor>(); },
      tensorflow::EvaluateConstantTensorRunner{graph_.op_registry(), graph_.versions().producer()});
  if (!value.ok() || !value->has_value()) return std::nullopt;
  constant.value = **std::move(value);
  return constant;
}

}  // namespace tf_tvm_ops
