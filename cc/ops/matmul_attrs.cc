#include "cc/ops/matmul_attrs.h"

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace tf_tvm_ops {

absl::Status ParseScale(const std::string& text, double* scale) {
  if (absl::SimpleAtod(text, scale)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("scale: expected a number as text, such as \"0.125\", got \"", text, "\""));
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
