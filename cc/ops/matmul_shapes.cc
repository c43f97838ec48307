#include "cc/ops/matmul_shapes.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace tf_tvm_ops {
namespace {

using tensorflow::TensorShape;

absl::Status Mismatch(const char* what, const TensorShape& lhs, const TensorShape& rhs, bool adj_x,
                      bool adj_y) {
  return absl::InvalidArgumentError(
      absl::StrCat(what, ": lhs shape ", lhs.DebugString(), ", rhs shape ", rhs.DebugString(),
                   ", adj_x=", adj_x ? "true" : "false", ", adj_y=", adj_y ? "true" : "false"));
}

// Batch dimension `i` of the output's `batch_rank`, in an operand that may have fewer.
int64_t BatchDim(const TensorShape& shape, int i, int batch_rank) {
  const int own = i - (batch_rank - (shape.dims() - 2));
  return own < 0 ? 1 : shape.dim_size(own);
}

// Row-major strides of the merged batch dimensions, innermost last; 0 where broadcast.
void SetBatchStrides(const std::array<bool, kMaxBatchRank>& present, int64_t matrix_size,
                     const Product& product, Operand* operand) {
  int64_t stride = matrix_size;
  for (int i = product.batch_rank - 1; i >= 0; --i) {
    operand->batch_strides[i] = present[i] ? stride : 0;
    if (present[i]) stride *= product.batch_shape[i];
  }
}

}  // namespace

absl::Status ResolveMatMulShapes(const TensorShape& lhs, const TensorShape& rhs, bool adj_x,
                                 bool adj_y, MatMulShapes* shapes) {
  if (lhs.dims() < 2 || rhs.dims() < 2) {
    return Mismatch("Both operands must have at least 2 dimensions", lhs, rhs, adj_x, adj_y);
  }
  const int64_t lhs_rows = lhs.dim_size(lhs.dims() - 2), lhs_columns = lhs.dim_size(lhs.dims() - 1);
  const int64_t rhs_rows = rhs.dim_size(rhs.dims() - 2), rhs_columns = rhs.dim_size(rhs.dims() - 1);
  Product& product = shapes->product;
  product.m = adj_x ? lhs_columns : lhs_rows;
  product.k = adj_x ? lhs_rows : lhs_columns;
  product.n = adj_y ? rhs_rows : rhs_columns;
  if (product.k != (adj_y ? rhs_columns : rhs_rows)) {
    return Mismatch("Matrix size-incompatible", lhs, rhs, adj_x, adj_y);
  }

  std::array<bool, kMaxBatchRank> in_lhs{}, in_rhs{};
  const int batch_rank = std::max(lhs.dims(), rhs.dims()) - 2;
  for (int i = 0; i < batch_rank; ++i) {
    const int64_t x = BatchDim(lhs, i, batch_rank), y = BatchDim(rhs, i, batch_rank);
    if (x != y && x != 1 && y != 1) {
      return Mismatch("Batch dimensions cannot be broadcast", lhs, rhs, adj_x, adj_y);
    }
    const int64_t extent = x == 1 ? y : x;
    absl::Status added = shapes->output.AddDimWithStatus(extent);
    if (!added.ok()) return Mismatch("The output is too large", lhs, rhs, adj_x, adj_y);
    shapes->same_batch &= x == y;
    shapes->single_rhs &= y == 1;
    if (extent == 1 || shapes->refusal != Refusal::kNone) continue;
    const int last = product.batch_rank - 1;
    if (last >= 0 && in_lhs[last] == (x != 1) && in_rhs[last] == (y != 1)) {
      product.batch_shape[last] *= extent;
    } else if (product.batch_rank == kMaxBatchRank) {
      shapes->refusal = Refusal::kRank;
    } else {
      in_lhs[product.batch_rank] = x != 1;
      in_rhs[product.batch_rank] = y != 1;
      product.batch_shape[product.batch_rank++] = extent;
    }
  }
  if (!shapes->output.AddDimWithStatus(product.m).ok() ||
      !shapes->output.AddDimWithStatus(product.n).ok()) {
    return Mismatch("The output is too large", lhs, rhs, adj_x, adj_y);
  }

  product.lhs.row_stride = adj_x ? 1 : product.k;
  product.lhs.column_stride = adj_x ? product.m : 1;
  product.rhs.row_stride = adj_y ? 1 : product.n;
  product.rhs.column_stride = adj_y ? product.k : 1;
  product.out.row_stride = product.n;
  product.out.column_stride = 1;
  SetBatchStrides(in_lhs, product.m * product.k, product, &product.lhs);
  SetBatchStrides(in_rhs, product.k * product.n, product, &product.rhs);
  std::array<bool, kMaxBatchRank> in_out;
  in_out.fill(true);
  SetBatchStrides(in_out, product.m * product.n, product, &product.out);
  return absl::OkStatus();
}

}  // namespace tf_tvm_ops
