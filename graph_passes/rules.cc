#include "graph_passes/rules.h"

namespace tf_tvm_ops {
namespace {

constexpr RuleForOp<ProductRule> kProducts[] = {
    {"BatchMatMulV2", MatchBatchMatMul},
    {"BatchMatMulV3", MatchBatchMatMul},
    {"BatchMatMul", MatchBatchMatMul},
    {"Einsum", MatchEinsum},
    // Of TensorFlow's remapper, in graphs that it has seen before this rewriter.
    {"_MklFusedBatchMatMulV2", MatchFusedBatchMatMul},
    {"_FusedBatchMatMulV2", MatchFusedBatchMatMul},
    {"TvmBatchMatMul", MatchOpOfFamily},
    {"TvmBatchMatMulAdd", MatchOpOfFamily},
    {"TvmBatchMatMulTranspose", MatchOpOfFamily},
};

constexpr RuleForOp<OperandRule> kOperands[] = {
    {"Transpose", AbsorbOperandTranspose},
    {"Mul", AbsorbOperandScale},
    {"RealDiv", AbsorbOperandScale},
    {"Div", AbsorbOperandScale},
};

constexpr RuleForOp<EpilogueRule> kEpilogues[] = {
    {"Mul", AbsorbScale},      {"RealDiv", AbsorbScale}, {"Div", AbsorbScale},
    {"Add", AbsorbAddend},     {"AddV2", AbsorbAddend},  {"AddN", AbsorbAddend},
    {"BiasAdd", AbsorbAddend}, {"Sub", AbsorbAddend},    {"Transpose", AbsorbTranspose},
    {"Cast", RefuseCast},
};

template <typename Rule, size_t size>
Rule Find(const RuleForOp<Rule> (&table)[size], std::string_view op) {
  for (const auto& entry : table) {
    if (entry.op == op) return entry.rule;
  }
  return nullptr;
}

}  // namespace

ProductRule FindProductRule(std::string_view op) { return Find(kProducts, op); }
OperandRule FindOperandRule(std::string_view op) { return Find(kOperands, op); }
EpilogueRule FindEpilogueRule(std::string_view op) { return Find(kEpilogues, op); }

}  // namespace tf_tvm_ops
