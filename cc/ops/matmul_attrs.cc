#include "cc/ops/matmul_attrs.h"

#include <algorithm>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace tf_tvm_ops {

absl::Status ParseScale(const std::string& text, double* scale) {
  if (absl::SimpleAtod(text, scale)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("scale: expected a number as text, such as \"0.125\", got \"", text, "\""));
}

absl::Status ParseRanks(const std::vector<int32_t>& list, std::array<int, 3>* ranks) {
  if (!list.empty() && list.size() != ranks->size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("ranks: expected none or 3 of them, got ", list.size()));
  }
  std::copy(list.begin(), list.end(), ranks->begin());
  return absl::OkStatus();
}

bool MatMulAttrs::HasRanks(int lhs_rank, int rhs_rank, int product_rank) const {
  const std::array<int, 3> got{lhs_rank, rhs_rank, product_rank};
  for (size_t i = 0; i < got.size(); ++i) {
    if (ranks[i] != 0 && ranks[i] != got[i]) return false;
  }
  return true;
}

absl::Status MatMulAttrs::Read(tensorflow::OpKernelConstruction* ctx, MatMulAttrs* attrs) {
  absl::Status status = ctx->GetAttr("T", &attrs->dtype);
  const auto read = [&](const char* name, bool* value) {
    if (status.ok()) status = ctx->GetAttr(name, value);
  };
  read("adj_x", &attrs->lhs.adjoint);
  read("adj_y", &attrs->rhs.adjoint);
  read("lhs_length_first", &attrs->lhs.length_first);
  read("rhs_length_first", &attrs->rhs.length_first);
  read("broadcast_batch", &attrs->broadcast_batch);
  std::vector<int32_t> rank_list;
  if (status.ok()) status = ctx->GetAttr("ranks", &rank_list);
  if (status.ok()) status = ParseRanks(rank_list, &attrs->ranks);
  attrs->output.length_first = ctx->def().op() == "TvmBatchMatMulTranspose";
  if (ctx->HasAttr("output_length_first")) {
    read("output_length_first", &attrs->output.length_first);
  }
  attrs->has_addend = ctx->num_inputs() == 3;
  if (ctx->HasAttr("has_addend")) read("has_addend", &attrs->has_addend);
  if (!status.ok() || !ctx->HasAttr("scale")) return status;
  std::string scale;
  status = ctx->GetAttr("scale", &scale);
  return status.ok() ? ParseScale(scale, &attrs->scale) : status;
}

}  // namespace tf_tvm_ops
