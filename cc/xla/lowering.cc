#include "cc/xla/lowering.h"

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

#include "tsl/platform/tensor_float_32_utils.h"
#include "xla/hlo/builder/lib/constants.h"
#include "xla/xla_data.pb.h"

namespace tf_tvm_ops {
namespace {

using Dimensions = std::vector<int64_t>;
using tensorflow::TensorShape;

// A factor of a product, whose dimensions end up at some place of a dot's result.
class Factor {
 public:
  // Heads are put before lengths by an operation of their own: where its batch dimensions do not
  // come first, XLA's CPU backend prepares a dot by slower ones.
  Factor(const XlaOperand& operand, const MatMulLayout& layout)
      : op_(operand.op),
        extents_(operand.shape.dims()),
        place_(operand.shape.dims(), -1),
        adjoint_(layout.adjoint) {
    Dimensions order(rank());
    std::iota(order.begin(), order.end(), 0);
    if (layout.length_first) {
      std::swap(order[rank() - 3], order[rank() - 2]);
      op_ = xla::Transpose(op_, order);
    }
    for (int i = 0; i < rank(); ++i) {
      extents_[i] = operand.shape.dim_size(static_cast<int>(order[i]));
    }
  }

  xla::XlaOp op() const { return op_; }
  int rank() const { return static_cast<int>(extents_.size()); }
  int64_t rows() const { return adjoint_ ? rank() - 1 : rank() - 2; }
  int64_t columns() const { return adjoint_ ? rank() - 2 : rank() - 1; }
  // Dimension `i` of a result that has `result_rank` of them, or negative if it is missing here.
  int64_t Batch(int i, int result_rank) const { return i - (result_rank - rank()); }
  int64_t extent(int64_t dimension) const { return extents_[dimension]; }

  // A dot's result has the batch dimensions first, then the others that are left of lhs and of rhs.
  void Place(int64_t dimension, int64_t place) { place_[dimension] = place; }
  int64_t PlaceRest(int64_t contracted, int64_t place) {
    for (int64_t dimension = 0; dimension < rank(); ++dimension) {
      if (place_[dimension] < 0 && dimension != contracted) place_[dimension] = place++;
    }
    return place;
  }
  int64_t place(int64_t dimension) const { return place_[dimension]; }

 private:
  xla::XlaOp op_;
  Dimensions extents_;
  Dimensions place_;
  bool adjoint_;
};

// As stock: TensorFloat-32 where the user allows it.
xla::PrecisionConfig Precision() {
  const auto precision = tsl::tensor_float_32_execution_enabled() ? xla::PrecisionConfig::DEFAULT
                                                                  : xla::PrecisionConfig::HIGHEST;
  xla::PrecisionConfig config;
  config.add_operand_precision(precision);
  config.add_operand_precision(precision);
  return config;
}

// The product, with the dimensions [batch..., rows, columns], or [..., rows, heads, columns] if it
// is to be length-first. One that has to be broadcast may come with another of extent 1 beside it.
//
// Only batch dimensions of equal extent are such for the dot. One that has to be broadcast is, in
// the factor that has it, like rows or columns; the other may have it with extent 1.
xla::XlaOp Multiply(Factor lhs, Factor rhs, bool length_first, xla::PrimitiveType type) {
  const int rank = std::max(lhs.rank(), rhs.rank());
  xla::DotDimensionNumbers numbers;
  int64_t place = 0;
  for (int i = 0; i < rank - 2; ++i) {
    const int64_t x = lhs.Batch(i, rank), y = rhs.Batch(i, rank);
    if (x < 0 || y < 0 || lhs.extent(x) != rhs.extent(y)) continue;
    numbers.add_lhs_batch_dimensions(x);
    numbers.add_rhs_batch_dimensions(y);
    lhs.Place(x, place);
    rhs.Place(y, place++);
  }
  numbers.add_lhs_contracting_dimensions(lhs.columns());
  numbers.add_rhs_contracting_dimensions(rhs.rows());
  place = lhs.PlaceRest(lhs.columns(), place);
  rhs.PlaceRest(rhs.rows(), place);

  std::vector<Dimensions> result(rank);
  for (int i = 0; i < rank - 2; ++i) {
    const int64_t x = lhs.Batch(i, rank), y = rhs.Batch(i, rank);
    if (x >= 0) result[i].push_back(lhs.place(x));
    if (y >= 0 && (x < 0 || lhs.place(x) != rhs.place(y))) result[i].push_back(rhs.place(y));
  }
  result[rank - 2] = {lhs.place(lhs.rows())};
  result[rank - 1] = {rhs.place(rhs.columns())};
  if (length_first) std::swap(result[rank - 3], result[rank - 2]);
  Dimensions order;
  for (const Dimensions& places : result) order.insert(order.end(), places.begin(), places.end());

  const xla::PrecisionConfig precision = Precision();
  return xla::Transpose(xla::DotGeneral(lhs.op(), rhs.op(), numbers, &precision, type), order);
}

xla::PrimitiveType TypeOf(tensorflow::DataType dtype) {
  switch (dtype) {
    case tensorflow::DT_HALF:
      return xla::F16;
    case tensorflow::DT_BFLOAT16:
      return xla::BF16;
    case tensorflow::DT_DOUBLE:
      return xla::F64;
    default:
      return xla::F32;
  }
}

// `op` of the shape `own` broadcast to `shape`, by NumPy's rules.
xla::XlaOp Broadcast(xla::XlaOp op, const TensorShape& own, const TensorShape& shape) {
  if (own == shape) return op;
  Dimensions dimensions(own.dims());
  std::iota(dimensions.begin(), dimensions.end(), shape.dims() - own.dims());
  return xla::BroadcastInDim(op, shape.dim_sizes(), dimensions);
}

}  // namespace

xla::XlaOp LowerMatMul(const MatMulAttrs& attrs, const MatMulShapes& shapes, const XlaOperand& lhs,
                       const XlaOperand& rhs, const std::optional<XlaOperand>& addend) {
  const xla::PrimitiveType type = TypeOf(attrs.dtype);
  const xla::PrimitiveType sums = type == xla::F64 ? xla::F64 : xla::F32;
  xla::XlaOp result = Multiply({lhs, attrs.lhs}, {rhs, attrs.rhs}, attrs.output.length_first, sums);
  const TensorShape& shape = addend ? shapes.product_shape : shapes.output;
  result = xla::Reshape(result, shape.dim_sizes());
  if (attrs.scale != 1.0) {
    result = xla::Mul(result, xla::ConstantR0WithType(result.builder(), sums, attrs.scale));
  }
  if (addend) {
    const xla::XlaOp term = xla::ConvertElementType(addend->op, sums);
    result = xla::Add(Broadcast(result, shape, shapes.output),
                      Broadcast(term, addend->shape, shapes.output));
  }
  return xla::ConvertElementType(result, type);
}

}  // namespace tf_tvm_ops
