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
  return node.type_string() == "Identity" && !HasControlInput(node) &&
         !tensorflow::IsRefType(node.input_type(0));
}

std::string GraphView::UnusedName(std::string name) {
  if (names_.empty()) {
    for (const Node* node : graph_.nodes()) names_.insert(node->name());
  }
  std::string candidate = name;
  for (int i = 1; !names_.insert(candidate).second; ++i) candidate = absl::StrCat(name, "_", i);
  return candidate;
}

Slot GraphView::BehindIdentities(Slot slot) const {
  const Node* producer = Producer(slot);
  while (producer != nullptr && IsPlainIdentity(*producer)) {
    slot = {producer, 0};
    producer = Producer(slot);
  }
  return slot;
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
  // Depth first, inputs before their node. What a loop leads back to is taken as unknown by the
  // refiner, as is the output of a node for which it fails.
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
      continue;
    }
    if (inferred_[visit.node->id()]) continue;
    inferred_[visit.node->id()] = true;
    stack.push_back({visit.node, true});
    for (const Edge* edge : visit.node->in_edges()) {
      if (!edge->IsControlEdge()) stack.push_back({edge->src(), false});
    }
  }
}

PartialTensorShape GraphView::Shape(const Slot& slot) {
  int output = 0;
  const Node* producer = Producer(slot, &output);
  PartialTensorShape shape;
  if (producer == nullptr) return shape;
  Infer(*producer);
  auto* context = refiner_->GetContext(producer);
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

std::optional<Tensor> GraphView::Constant(const Slot& slot) {
  // A loop's Enter keeps the value; TensorFlow's evaluation stops at it.
  Slot source = BehindIdentities(slot);
  int output = 0;
  const Node* producer = Producer(source, &output);
  while (producer != nullptr && producer->IsEnter()) {
    source = BehindIdentities({producer, 0});
    producer = Producer(source, &output);
  }
  if (producer == nullptr) return std::nullopt;
  const PartialTensorShape shape = Shape(source);
  if (!shape.IsFullyDefined() || shape.num_elements() > kMaxConstantElements) return std::nullopt;
  auto value = tensorflow::EvaluateConstantTensor(
      *producer, output, *refiner_, [](const Node&, int) { return std::optional<Tensor>(); },
      tensorflow::EvaluateConstantTensorRunner{graph_.op_registry(), graph_.versions().producer()});
  return value.ok() ? *std::move(value) : std::nullopt;
}

std::optional<std::vector<int64_t>> GraphView::ConstantVector(const Slot& slot) {
  const std::optional<Tensor> value = Constant(slot);
  if (!value.has_value() || value->dims() != 1) return std::nullopt;
  std::vector<int64_t> elements(value->NumElements());
  for (int64_t i = 0; i < value->NumElements(); ++i) {
    if (value->dtype() == tensorflow::DT_INT32) {
      elements[i] = value->flat<int32_t>()(i);
    } else if (value->dtype() == tensorflow::DT_INT64) {
      elements[i] = value->flat<int64_t>()(i);
    } else {
      return std::nullopt;
    }
  }
  return elements;
}

}  // namespace tf_tvm_ops
