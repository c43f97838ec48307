// Definitions of the ops of the family: inputs, attributes, documentation.
#include <string>

#include "absl/strings/str_cat.h"
#include "cc/ops/registrations.h"
#include "cc/ops/shape_functions.h"
#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_def_builder.h"

namespace tf_tvm_ops {
namespace {

using tensorflow::OpDefBuilder;

// What all of them have.
OpDefBuilder Define(const char* name) {
  OpDefBuilder op(name);
  op.Input("lhs: T")
      .Input("rhs: T")
      .Attr("T: {half, bfloat16, float, double}")
      .Attr("adj_x: bool = false")
      .Attr("adj_y: bool = false")
      .Attr("lhs_length_first: bool = false")
      .Attr("rhs_length_first: bool = false")
      .Attr("broadcast_batch: bool = true")
      .Attr("scale: string = '1.0'");
  return op;
}

constexpr char kOperands[] = R"doc(
lhs: `[..., M, K]`, or `[..., K, M]` with `adj_x`.
rhs: `[..., K, N]`, or `[..., N, K]` with `adj_y`.
adj_x: Whether to transpose the matrices of `lhs`.
adj_y: Whether to transpose the matrices of `rhs`.
lhs_length_first: Whether the dimensions -3 and -2 of `lhs` come in the other order:
  `[..., length, heads, depth]` for `[..., heads, length, depth]`. They are put right before `adj_x`
  applies.
rhs_length_first: The same for `rhs`.
broadcast_batch: Whether batch dimensions are broadcast; they have to be equal otherwise.
scale: A number as text, "0.125", so that float64 loses nothing.
)doc";

std::string Doc(const char* summary, const char* others) {
  return absl::StrCat(summary, kOperands, others);
}

void Register(const OpDefBuilder& op) {
  tensorflow::OpRegistry::Global()->Register(
      [op](tensorflow::OpRegistrationData* data) { return op.Finalize(data); });
}

}  // namespace

void RegisterBatchMatMulOps() {
  Register(Define("TvmBatchMatMul")
               .Output("output: T")
               .SetShapeFn(BatchMatMulShape)
               .Doc(Doc("Computes scale * (lhs · rhs) in batches, as BatchMatMulV2 and Mul do.\n",
                        "output: `[..., M, N]`.\n")));

  Register(Define("TvmBatchMatMulAdd")
               .Input("addend: T")
               .Output("output: T")
               .SetShapeFn(BatchMatMulAddShape)
               .Doc(Doc("Computes scale * (lhs · rhs) + addend in batches, as BatchMatMulV2, Mul "
                        "and AddV2 do.\n",
                        "addend: Of any shape that can be broadcast against `[..., M, N]`.\n"
                        "output: `[..., M, N]`, broadcast against `addend`.\n")));

  Register(Define("TvmBatchMatMulTranspose")
               .Output("output: T")
               .SetShapeFn(BatchMatMulTransposeShape)
               .Doc(Doc("Computes scale * (lhs · rhs) in batches and swaps the dimensions -3 and "
                        "-2 of it.\n",
                        "output: `[..., M, heads, N]`, where `heads` is the last batch dimension; "
                        "there must be one.\n")));

  Register(Define("TvmBatchMatMulServedBy")
               .Output("server: string")
               .Attr("has_addend: bool = false")
               .Attr("output_length_first: bool = false")
               .SetShapeFn(tensorflow::shape_inference::ScalarShape)
               .Doc(Doc("Names what serves a product of the same inputs and attributes.\n",
                        "has_addend: Whether TvmBatchMatMulAdd is meant, with an addend that does "
                        "not enlarge the product.\n"
                        "output_length_first: Whether TvmBatchMatMulTranspose is meant.\n"
                        "server: The symbol of a kernel, \"stock (...)\" with the reason, or "
                        "\"zeros\" for an empty product.\n")));
}

}  // namespace tf_tvm_ops
