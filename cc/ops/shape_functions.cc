#include "cc/ops/shape_functions.h"

#include "tensorflow/core/framework/common_shape_fns.h"

namespace tf_tvm_ops {
namespace {

using tensorflow::shape_inference::DimensionHandle;
using tensorflow::shape_inference::InferenceContext;
using tensorflow::shape_inference::ShapeHandle;

// `shape`, of rank 3 or more, with the dimensions -3 and -2 in the other order.
absl::Status SwapLengthAndHeads(InferenceContext* c, ShapeHandle shape, ShapeHandle* swapped) {
  ShapeHandle at_least_3, batch;
  absl::Status status = c->WithRankAtLeast(shape, 3, &at_least_3);
  if (status.ok() && !c->RankKnown(at_least_3)) {
    *swapped = c->UnknownShape();
    return status;
  }
  if (status.ok()) status = c->Subshape(at_least_3, 0, -3, &batch);
  if (!status.ok()) return status;
  const ShapeHandle matrices =
      c->MakeShape({c->Dim(at_least_3, -2), c->Dim(at_least_3, -3), c->Dim(at_least_3, -1)});
  return c->Concatenate(batch, matrices, swapped);
}

// An operand as matrices [..., rows, columns].
struct Matrices {
  ShapeHandle batch;
  DimensionHandle rows;
  DimensionHandle columns;
};

absl::Status GetMatrices(InferenceContext* c, int input, const char* adjoint_name,
                         const char* length_first_name, Matrices* matrices) {
  bool adjoint, length_first;
  ShapeHandle shape;
  absl::Status status = c->GetAttr(adjoint_name, &adjoint);
  if (status.ok()) status = c->GetAttr(length_first_name, &length_first);
  if (status.ok()) status = c->WithRankAtLeast(c->input(input), 2, &shape);
  if (status.ok() && length_first) status = SwapLengthAndHeads(c, shape, &shape);
  if (status.ok()) status = c->Subshape(shape, 0, -2, &matrices->batch);
  if (!status.ok()) return status;
  matrices->rows = c->Dim(shape, adjoint ? -1 : -2);
  matrices->columns = c->Dim(shape, adjoint ? -2 : -1);
  return status;
}

absl::Status Broadcast(InferenceContext* c, ShapeHandle x, ShapeHandle y, ShapeHandle* shape) {
  return tensorflow::shape_inference::BroadcastBinaryOpOutputShapeFnHelper(
      c, x, y, /*incompatible_shape_error=*/true, shape);
}

// That of lhs·rhs, [batch..., M, N].
absl::Status ProductShape(InferenceContext* c, ShapeHandle* product) {
  Matrices lhs, rhs;
  DimensionHandle inner;
  ShapeHandle batch;
  absl::Status status = GetMatrices(c, 0, "adj_x", "lhs_length_first", &lhs);
  if (status.ok()) status = GetMatrices(c, 1, "adj_y", "rhs_length_first", &rhs);
  if (status.ok()) status = c->Merge(lhs.columns, rhs.rows, &inner);
  bool broadcast_batch = true;
  if (status.ok()) status = c->GetAttr("broadcast_batch", &broadcast_batch);
  if (status.ok()) {
    status = broadcast_batch ? Broadcast(c, lhs.batch, rhs.batch, &batch)
                             : c->Merge(lhs.batch, rhs.batch, &batch);
  }
  if (!status.ok()) return status;
  return c->Concatenate(batch, c->Matrix(lhs.rows, rhs.columns), product);
}

}  // namespace

absl::Status BatchMatMulShape(InferenceContext* c) {
  ShapeHandle product;
  absl::Status status = ProductShape(c, &product);
  if (status.ok()) c->set_output(0, product);
  return status;
}

absl::Status BatchMatMulAddShape(InferenceContext* c) {
  ShapeHandle product, sum;
  absl::Status status = ProductShape(c, &product);
  if (status.ok()) status = Broadcast(c, product, c->input(2), &sum);
  if (status.ok()) c->set_output(0, sum);
  return status;
}

absl::Status BatchMatMulTransposeShape(InferenceContext* c) {
  ShapeHandle product, output;
  absl::Status status = ProductShape(c, &product);
  if (status.ok()) status = SwapLengthAndHeads(c, product, &output);
  if (status.ok()) c->set_output(0, output);
  return status;
}

}  // namespace tf_tvm_ops
