#include "cc/ops/matmul_shapes.h"

#include <algorithm>

#include "absl/container/inlined_vector.h"
#include "absl/strings/str_cat.h"
#include "cc/ops/strided_view.h"

namespace tf_tvm_ops {
namespace {

using tensorflow::TensorShape;

// Dimensions counted from the last one.
constexpr int kColumns = 0, kRows = 1, kHeads = 2;

// Extents counted from the last dimension.
using Extents = absl::InlinedVector<int64_t, 8>;

absl::Status Invalid(const char* what, const MatMulAttrs& attrs, const TensorShape& lhs,
                     const TensorShape& rhs, const TensorShape* addend = nullptr) {
  std::string text =
      absl::StrCat(what, ": lhs shape ", lhs.DebugString(), ", rhs shape ", rhs.DebugString());
  if (addend != nullptr) absl::StrAppend(&text, ", addend shape ", addend->DebugString());
  absl::StrAppend(&text, ", adj_x=", attrs.lhs.adjoint ? "true" : "false",
                  ", adj_y=", attrs.rhs.adjoint ? "true" : "false");
  if (attrs.lhs.length_first) absl::StrAppend(&text, ", lhs_length_first=true");
  if (attrs.rhs.length_first) absl::StrAppend(&text, ", rhs_length_first=true");
  return absl::InvalidArgumentError(text);
}

// A tensor of this layout as matrices [..., rows, columns].
StridedView Matrices(const TensorShape& shape, const MatMulLayout& layout) {
  StridedView view(shape);
  if (layout.length_first) view.Swap(kRows, kHeads);
  if (layout.adjoint) view.Swap(kColumns, kRows);
  return view;
}

// False if an extent does not fit the other, of which neither is 1.
bool Broadcast(int64_t x, int64_t y, int64_t* extent) {
  *extent = x == 1 ? y : x;
  return x == y || x == 1 || y == 1;
}

// False if there are too many elements to count.
bool Shape(const Extents& extents, TensorShape* shape) {
  for (auto extent = extents.rbegin(); extent != extents.rend(); ++extent) {
    if (!shape->AddDimWithStatus(*extent).ok()) return false;
  }
  return true;
}

// Strides of the operands of a product whose extents are known.
void SetStrides(const Extents& extents, const StridedView& lhs, const StridedView& rhs,
                const StridedView& addend, const StridedView& out, MatMulShapes* shapes) {
  Product& product = shapes->product;
  product.lhs.row_stride = lhs.stride(kRows);
  product.lhs.column_stride = lhs.stride(kColumns);
  product.rhs.row_stride = rhs.stride(kRows);
  product.rhs.column_stride = rhs.stride(kColumns);
  product.out.row_stride = out.stride(kRows);
  product.out.column_stride = out.stride(kColumns);
  product.addend.row_stride = addend.BroadcastStride(kRows);
  product.addend.column_stride = addend.BroadcastStride(kColumns);
  for (int i = static_cast<int>(extents.size()) - 1; i >= kHeads; --i) {
    if (!product.AddBatchDim(extents[i], lhs.BroadcastStride(i), rhs.BroadcastStride(i),
                             out.BroadcastStride(i), addend.BroadcastStride(i))) {
      shapes->refusal = Refusal::kRank;
      return;
    }
  }
}

DType KernelDType(tensorflow::DataType dtype) {
  switch (dtype) {
    case tensorflow::DT_HALF:
      return DType::kFloat16;
    case tensorflow::DT_BFLOAT16:
      return DType::kBfloat16;
    case tensorflow::DT_DOUBLE:
      return DType::kFloat64;
    default:
      return DType::kFloat32;
  }
}

}  // namespace

TensorShape HeadsFirst(const TensorShape& shape, const MatMulLayout& layout) {
  TensorShape swapped;
  for (int i = 0; i < shape.dims(); ++i) {
    int from = i;
    if (layout.length_first && i == shape.dims() - 3) from = i + 1;
    if (layout.length_first && i == shape.dims() - 2) from = i - 1;
    swapped.AddDim(shape.dim_size(from));
  }
  return swapped;
}

absl::Status ResolveMatMulShapes(const MatMulAttrs& attrs, const TensorShape& lhs_shape,
                                 const TensorShape& rhs_shape, const TensorShape* addend_shape,
                                 MatMulShapes* shapes) {
  const auto invalid = [&](const char* what) {
    return Invalid(what, attrs, lhs_shape, rhs_shape, addend_shape);
  };
  if (lhs_shape.dims() < 2 || rhs_shape.dims() < 2) {
    return invalid("Both operands must have at least 2 dimensions");
  }
  if (lhs_shape.dims() < (attrs.lhs.length_first ? 3 : 2) ||
      rhs_shape.dims() < (attrs.rhs.length_first ? 3 : 2)) {
    return invalid("A length-first operand must have at least 3 dimensions");
  }
  const StridedView lhs = Matrices(lhs_shape, attrs.lhs), rhs = Matrices(rhs_shape, attrs.rhs);
  const int rank = std::max(lhs.rank(), rhs.rank());
  if (attrs.output.length_first && rank < 3) {
    return invalid("A transposed product must have at least 3 dimensions");
  }

  Product& product = shapes->product;
  product.dtype = KernelDType(attrs.dtype);
  product.m = lhs.BroadcastExtent(kRows);
  product.n = rhs.BroadcastExtent(kColumns);
  product.k = lhs.BroadcastExtent(kColumns);
  if (!attrs.HasRanks(lhs.rank(), rhs.rank(), rank)) {
    return invalid(
        "An operand, or the product, has another number of dimensions than the op is for");
  }
  if (product.k != rhs.BroadcastExtent(kRows)) return invalid("Matrix size-incompatible");
  Extents extents(rank);
  extents[kColumns] = product.n;
  extents[kRows] = product.m;
  if (!attrs.broadcast_batch && lhs.rank() != rhs.rank()) {
    return invalid("Operands must have as many dimensions as each other");
  }
  for (int i = kHeads; i < rank; ++i) {
    const int64_t x = lhs.BroadcastExtent(i), y = rhs.BroadcastExtent(i);
    if (!Broadcast(x, y, &extents[i])) return invalid("Batch dimensions cannot be broadcast");
    if (!attrs.broadcast_batch && x != y) return invalid("Batch dimensions must be equal");
    shapes->same_batch &= x == y;
    shapes->single_rhs &= y == 1;
  }
  shapes->single_rhs &= !attrs.lhs.adjoint;
  shapes->reordered = attrs.lhs.length_first || attrs.rhs.length_first || attrs.output.length_first;
  if (!Shape(extents, &shapes->product_shape)) return invalid("The output is too large");

  const StridedView scalar, addend(addend_shape == nullptr ? TensorShape() : *addend_shape);
  Extents output = extents;
  output.resize(std::max(rank, addend.rank()), 1);
  for (int i = 0; i < static_cast<int>(output.size()); ++i) {
    if (!Broadcast(output[i], addend.BroadcastExtent(i), &output[i])) {
      return invalid("The addend cannot be broadcast against the product");
    }
  }
  shapes->enlarged = output != extents;
  if (attrs.output.length_first) std::swap(output[kRows], output[kHeads]);
  if (!Shape(output, &shapes->output)) return invalid("The output is too large");
  if (!shapes->enlarged) {
    product.has_addend = attrs.has_addend;
    product.scale = attrs.scale;
  }
  const StridedView out = shapes->enlarged ? StridedView(shapes->product_shape)
                                           : Matrices(shapes->output, attrs.output);
  SetStrides(extents, lhs, rhs, shapes->enlarged ? scalar : addend, out, shapes);
  return absl::OkStatus();
}

}  // namespace tf_tvm_ops
