#include "graph_passes/planner.h"

#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "graph_passes/family.h"
#include "graph_passes/guards.h"
#include "graph_passes/rules.h"

namespace tf_tvm_ops {
namespace {

using tensorflow::Edge;
using tensorflow::Node;

class Planner {
 public:
  explicit Planner(GraphView& view) : view_(view) {}

  RewritePlan Run() {
    for (const Node* node : view_.graph().op_nodes()) {
      const ProductRule rule = FindProductRule(node->type_string());
      if (rule != nullptr && !IsKeptAside(*node)) Visit(*node, rule);
    }
    return std::move(plan_);
  }

 private:
  void Visit(const Node& node, ProductRule rule) {
    Outcome outcome;
    outcome.product = node.name();
    outcome.product_op = node.type_string();
    Fusion fusion;
    fusion.product = &node;
    Verdict verdict = rule(view_, node, &fusion);
    if (verdict.taken() && HasOwnGradient(view_, node)) {
      verdict = Verdict::Refused(Reason::kGradient);
    }
    if (verdict.taken()) verdict = CheckProduct(view_, fusion);
    const bool own = IsOpOfFamily(node.type_string());
    if (verdict.taken() && !own && (fusion.scale != 1 || fusion.addend.has_value())) {
      verdict = EpiloguePays(view_, fusion);
    }
    if (fusion.dtype != tensorflow::DT_INVALID) outcome.shapes = Shapes(fusion);
    Verdict more;
    if (verdict.taken()) {
      more = Grow(&fusion);
      verdict = more.reason == Reason::k16Bit ? more : BeatsStock(view_, fusion);
    }
    if (own && (!verdict.taken() || fusion.absorbed.size() == 1)) return;  // no news
    if (verdict.taken()) {
      plan_.replacements.push_back(MakeReplacement(view_, fusion));
      outcome.op = plan_.replacements.back().nodes.back().def.op();
      outcome.node = fusion.tail->name();
      outcome.parts = fusion.parts;
      taken_.insert(fusion.absorbed.begin(), fusion.absorbed.end());
      verdict = more;
    }
    outcome.reason = verdict.reason;
    outcome.detail = verdict.detail;
    plan_.outcomes.push_back(std::move(outcome));
  }

  std::string Shapes(const Fusion& fusion) {
    return absl::StrCat(view_.Shape(fusion.lhs.tensor).DebugString(), " ",
                        view_.Shape(fusion.rhs.tensor).DebugString());
  }

  // Extends the fusion in all directions; gives the first reason why it ended somewhere.
  Verdict Grow(Fusion* fusion) {
    Verdict lhs = GrowOperand(&Fusion::lhs, fusion);
    Verdict rhs = GrowOperand(&Fusion::rhs, fusion);
    Verdict output = GrowOutput(fusion);
    for (Verdict* verdict : {&output, &lhs, &rhs}) {
      if (verdict->refused()) return *verdict;
    }
    return output;
  }

  Verdict GrowOperand(FusedOperand Fusion::* operand, Fusion* fusion) {
    for (;;) {
      const Verdict verdict = StepUp(operand, fusion);
      if (!verdict.taken()) return verdict;
    }
  }

  // Over one node that gives an operand; the fusion is as it was unless that is taken.
  Verdict StepUp(FusedOperand Fusion::* operand, Fusion* fusion) {
    Slot use = (fusion->*operand).tensor;
    const Node* producer = view_.Producer(use);
    std::vector<const Node*> identities;
    while (producer != nullptr && GraphView::IsPlainIdentity(*producer)) {
      if (!IsOnlyUse(*producer, use).taken()) return Verdict::NotApplicable();
      identities.push_back(producer);
      use = {producer, 0};
      producer = view_.Producer(use);
    }
    const OperandRule rule =
        producer == nullptr ? nullptr : FindOperandRule(producer->type_string());
    if (rule == nullptr) return Verdict::NotApplicable();
    Fusion after = *fusion;
    // Asked first, since most factors and transposes beside products are none that could be fused.
    Verdict verdict = rule(view_, *producer, &(after.*operand), &after);
    if (!verdict.taken()) return verdict;
    verdict = IsOnlyUse(*producer, use);
    if (verdict.taken() && !SameDevice(*producer, *fusion->product)) {
      verdict = Verdict::Refused(Reason::kOtherDevice, producer->name());
    }
    if (verdict.taken() && HasOwnGradient(view_, *producer)) {
      verdict = Verdict::Refused(Reason::kGradient, producer->name());
    }
    if (verdict.taken() && after.scale != fusion->scale) verdict = EpiloguePays(view_, after);
    if (!verdict.taken()) return verdict;
    after.absorbed.insert(after.absorbed.end(), identities.begin(), identities.end());
    *fusion = std::move(after);
    return verdict;
  }

  Verdict IsOnlyUse(const Node& node, const Slot& use) const {
    if (taken_.contains(&node)) return Verdict::Refused(Reason::kTaken, node.name());
    Slot only;
    Verdict verdict = view_.OnlyUse(node, &only);
    if (verdict.taken() && (only.node != use.node || only.input != use.input)) {
      verdict = Verdict::Refused(Reason::kConsumers, only.node->name());
    }
    return verdict;
  }

  Verdict GrowOutput(Fusion* fusion) {
    Fusion trial = *fusion;
    for (;;) {
      Slot use;
      Verdict verdict = view_.OnlyUse(*trial.tail, &use);
      if (!verdict.taken()) return HasEpilogue(*trial.tail) ? verdict : Verdict::NotApplicable();
      if (taken_.contains(use.node)) return Verdict::Refused(Reason::kTaken, use.node->name());
      if (GraphView::IsPlainIdentity(*use.node)) {
        trial.Absorb(*use.node, "");  // for good only with something behind it
        continue;
      }
      const EpilogueRule rule = FindEpilogueRule(use.node->type_string());
      if (rule == nullptr)
        return {Verdict::Kind::kNotApplicable, Reason::kNone, use.node->op_def().name()};
      verdict = rule(view_, use, &trial);
      if (verdict.taken() && !SameDevice(*use.node, *trial.product)) {
        verdict = Verdict::Refused(Reason::kOtherDevice, use.node->name());
      }
      if (verdict.taken() && HasOwnGradient(view_, *use.node)) {
        verdict = Verdict::Refused(Reason::kGradient, use.node->name());
      }
      if (verdict.taken() && (trial.scale != fusion->scale || trial.addend.has_value())) {
        verdict = EpiloguePays(view_, trial);
      }
      if (!verdict.taken()) return verdict;
      *fusion = trial;
    }
  }

  // Whether some use of the node could have been fused.
  static bool HasEpilogue(const Node& node) {
    for (const Edge* edge : node.out_edges()) {
      if (!edge->IsControlEdge() && FindEpilogueRule(edge->dst()->type_string()) != nullptr) {
        return true;
      }
    }
    return false;
  }

  GraphView& view_;
  RewritePlan plan_;
  absl::flat_hash_set<const Node*> taken_;
};

}  // namespace

bool HasProducts(const tensorflow::Graph& graph) {
  for (const Node* node : graph.op_nodes()) {
    if (FindProductRule(node->type_string()) != nullptr) return true;
  }
  return false;
}

RewritePlan PlanRewrites(GraphView& view) { return Planner(view).Run(); }

}  // namespace tf_tvm_ops
