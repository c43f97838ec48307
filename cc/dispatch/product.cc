#include "cc/dispatch/product.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace tf_tvm_ops {
namespace {

// Whether stepping once in the outer dimension is stepping `inner_extent` times in the inner one:
// then, for this operand, the two are one. Holds where it is broadcast too, since 0 = 0 * extent.
bool GoesOn(int64_t outer_stride, int64_t inner_stride, int64_t inner_extent) {
  return outer_stride == inner_stride * inner_extent;
}

// A dimension of extent 1 has no neighbours, so either order of the operand is true; "k" is
// preferred because kernels exist for it, and kernels/problem.py (canonical) prefers alike.
bool ChooseLhs(const Product& product, LhsContiguous* contiguous, int64_t* stride) {
  if (product.lhs.column_stride == 1 || product.k <= 1) {
    *contiguous = LhsContiguous::kK;
    *stride = product.lhs.row_stride;
    return true;
  }
  if (product.lhs.row_stride == 1 || product.m <= 1) {
    *contiguous = LhsContiguous::kM;
    *stride = product.lhs.column_stride;
    return true;
  }
  return false;
}

// With n = 1 both orders hold whenever k is contiguous, also for a row-major [k, 1]: "k" it is, so
// that one kernel serves both.
bool ChooseRhs(const Product& product, RhsContiguous* contiguous, int64_t* stride) {
  const bool k_contiguous = product.rhs.row_stride == 1 || product.k <= 1;
  const bool n_contiguous = product.rhs.column_stride == 1 || product.n <= 1;
  if (k_contiguous && (product.n <= 1 || !n_contiguous)) {
    *contiguous = RhsContiguous::kK;
    *stride = product.rhs.column_stride;
    return true;
  }
  if (n_contiguous) {
    *contiguous = RhsContiguous::kN;
    *stride = product.rhs.row_stride;
    return true;
  }
  return false;
}

// With n = 1 the column stride means nothing, and both kinds are true: kMatrix it is.
bool ChooseAddend(const Product& product, AddendKind* kind, int64_t* stride) {
  if (!product.has_addend) return true;
  if (product.addend.column_stride == 1 || product.n <= 1) {
    *kind = AddendKind::kMatrix;
  } else if (product.addend.column_stride == 0) {
    *kind = AddendKind::kColumn;
  } else {
    return false;
  }
  *stride = product.addend.row_stride;
  return true;
}

const char* Offset(const void* data, int64_t bytes) {
  return static_cast<const char*>(data) + bytes;
}

// The two terms of an empty sum. `zero` is scale * 0: 0, -0 or NaN.
float Add(float zero, float addend) { return zero + addend; }
double Add(double zero, double addend) { return zero + addend; }

// The same for the bits of float16 or bfloat16, whose sign is the highest bit of both.
uint16_t Add(uint16_t zero, uint16_t addend) {
  constexpr uint16_t kMagnitude = 0x7FFF;
  if ((zero & kMagnitude) != 0) return zero;
  if ((addend & kMagnitude) != 0) return addend;
  return zero & addend;  // zeros add up to 0, unless both are -0
}

template <typename Element>
void FillEmptySums(const KernelArgs& args, Element zero) {
  const int64_t addend_column_stride = args.addend_kind == AddendKind::kMatrix ? 1 : 0;
  for (int64_t i = args.begin; i < args.end; ++i) {
    const int64_t batch = i / args.heads;
    const int64_t head = i % args.heads;
    Element* out = static_cast<Element*>(args.out) + batch * args.out_batch_stride +
                   head * args.out_head_stride;
    if (args.addend_kind == AddendKind::kNone) {
      for (int64_t m = 0; m < args.m; ++m) std::fill_n(out + m * args.out_stride, args.n, zero);
      continue;
    }
    const Element* addend = static_cast<const Element*>(args.addend) +
                            batch * args.addend_batch_stride + head * args.addend_head_stride;
    for (int64_t m = 0; m < args.m; ++m) {
      for (int64_t n = 0; n < args.n; ++n) {
        out[m * args.out_stride + n] =
            Add(zero, addend[m * args.addend_stride + n * addend_column_stride]);
      }
    }
  }
}

// What kernels would give for k = 0. They are not asked, so that they may take their first k as
// given.
void FillEmptySums(const KernelArgs& args, DType dtype) {
  // Kernels scale in float32, unless the type is float64.
  const float zero = static_cast<float>(args.scale) * 0.0f;
  const uint16_t zero_bits = std::signbit(zero) ? 0x8000 : 0;
  switch (dtype) {
    case DType::kFloat32:
      return FillEmptySums<float>(args, zero);
    case DType::kFloat64:
      return FillEmptySums<double>(args, args.scale * 0.0);
    case DType::kFloat16:
      return FillEmptySums<uint16_t>(args, std::isnan(zero) ? 0x7E00 : zero_bits);
    case DType::kBfloat16:
      return FillEmptySums<uint16_t>(args, std::isnan(zero) ? 0x7FC0 : zero_bits);
  }
}

}  // namespace

const char* RefusalName(Refusal refusal) {
  switch (refusal) {
    case Refusal::kNone:
      return "none";
    case Refusal::kNoKernel:
      return "no_kernel";
    case Refusal::kLayout:
      return "layout";
    case Refusal::kRank:
      return "rank";
    case Refusal::kImage:
      return "image";
    case Refusal::kKernelFailed:
      return "kernel_failed";
    case Refusal::kStockFaster:
      return "stock_faster";
    case Refusal::kConfigured:
      return "configured";
  }
  return "unknown";
}

bool Product::AddBatchDim(int64_t extent, int64_t lhs_stride, int64_t rhs_stride,
                          int64_t out_stride, int64_t addend_stride) {
  if (!has_addend) addend_stride = 0;
  if (extent == 1) return true;
  const int last = batch_rank - 1;
  const bool merges = last >= 0 && GoesOn(lhs.batch_strides[last], lhs_stride, extent) &&
                      GoesOn(rhs.batch_strides[last], rhs_stride, extent) &&
                      GoesOn(out.batch_strides[last], out_stride, extent) &&
                      GoesOn(addend.batch_strides[last], addend_stride, extent);
  if (!merges && batch_rank == kMaxBatchRank) return false;
  const int at = merges ? last : batch_rank++;
  batch_shape[at] = merges ? batch_shape[at] * extent : extent;
  lhs.batch_strides[at] = lhs_stride;
  rhs.batch_strides[at] = rhs_stride;
  out.batch_strides[at] = out_stride;
  addend.batch_strides[at] = addend_stride;
  return true;
}

Refusal Plan::Make(const Product& product, Plan* plan) {
  if (product.batch_rank < 0 || product.batch_rank > kMaxBatchRank) return Refusal::kRank;
  Problem problem;
  problem.dtype = product.dtype;
  problem.m = product.m;
  problem.n = product.n;
  problem.k = product.k;
  KernelArgs args{};
  if (!ChooseLhs(product, &problem.lhs_contiguous, &args.lhs_stride) ||
      !ChooseRhs(product, &problem.rhs_contiguous, &args.rhs_stride) ||
      !ChooseAddend(product, &args.addend_kind, &args.addend_stride) ||
      (product.out.column_stride != 1 && product.n > 1)) {
    return Refusal::kLayout;
  }
  args.out_stride = product.out.row_stride;
  args.scale = product.scale;
  args.m = product.m;
  args.n = product.n;
  args.k = product.k;

  Product merged;
  merged.has_addend = product.has_addend;
  for (int i = 0; i < product.batch_rank; ++i) {
    merged.AddBatchDim(product.batch_shape[i], product.lhs.batch_strides[i],
                       product.rhs.batch_strides[i], product.out.batch_strides[i],
                       product.addend.batch_strides[i]);
  }
  // The last two dimensions are batch and heads; a single one is the batch, of one head each.
  int rank = merged.batch_rank;
  int64_t batch = 1;
  args.heads = 1;
  if (rank > 1) {
    --rank;
    args.heads = merged.batch_shape[rank];
    args.lhs_head_stride = merged.lhs.batch_strides[rank];
    args.rhs_head_stride = merged.rhs.batch_strides[rank];
    args.out_head_stride = merged.out.batch_strides[rank];
    args.addend_head_stride = merged.addend.batch_strides[rank];
  }
  if (rank > 0) {
    --rank;
    batch = merged.batch_shape[rank];
    args.lhs_batch_stride = merged.lhs.batch_strides[rank];
    args.rhs_batch_stride = merged.rhs.batch_strides[rank];
    args.out_batch_stride = merged.out.batch_strides[rank];
    args.addend_batch_stride = merged.addend.batch_strides[rank];
  }

  plan->problem_ = problem;
  plan->args_ = args;
  plan->inner_size_ = batch * args.heads;
  plan->outer_rank_ = rank;
  plan->outer_shape_ = merged.batch_shape;
  plan->outer_strides_ = {merged.lhs.batch_strides, merged.rhs.batch_strides,
                          merged.out.batch_strides, merged.addend.batch_strides};
  plan->size_ = plan->inner_size_;
  for (int i = 0; i < rank; ++i) plan->size_ *= merged.batch_shape[i];
  plan->Bind(product.lhs.data, product.rhs.data, product.addend.data,
             const_cast<void*>(product.out.data));
  return Refusal::kNone;
}

void Plan::Bind(const void* lhs, const void* rhs, const void* addend, void* out) {
  args_.lhs = lhs;
  args_.rhs = rhs;
  args_.addend = args_.addend_kind == AddendKind::kNone ? nullptr : addend;
  args_.out = out;
}

std::string Plan::Run(const Kernel& kernel, int64_t begin, int64_t end) const {
  if (begin < 0 || begin > end || end > size_) {
    return "matrices [" + std::to_string(begin) + ", " + std::to_string(end) +
           ") asked of a product of " + std::to_string(size_);
  }
  if (!(kernel.problem() == problem_) && !(kernel.problem() == problem_.Generic())) {
    return "the kernel " + kernel.symbol() + " computes " + kernel.problem().ToString() + ", not " +
           problem_.ToString();
  }
  if (problem_.m == 0 || problem_.n == 0) return {};
  const int64_t element_bytes = ElementBytes(problem_.dtype);
  KernelArgs args = args_;
  while (begin < end) {
    // One call for each stretch of matrices that batch and heads can count through.
    int64_t outer = begin / inner_size_;
    args.begin = begin % inner_size_;
    args.end = std::min(inner_size_, args.begin + (end - begin));
    begin += args.end - args.begin;
    std::array<int64_t, 4> offsets{};  // in elements: lhs, rhs, out, addend
    for (int dim = outer_rank_ - 1; dim >= 0; --dim) {
      const int64_t index = outer % outer_shape_[dim];
      outer /= outer_shape_[dim];
      for (size_t i = 0; i < offsets.size(); ++i) offsets[i] += index * outer_strides_[i][dim];
    }
    args.lhs = Offset(args_.lhs, offsets[0] * element_bytes);
    args.rhs = Offset(args_.rhs, offsets[1] * element_bytes);
    args.out = const_cast<char*>(Offset(args_.out, offsets[2] * element_bytes));
    args.addend = Offset(args_.addend, offsets[3] * element_bytes);
    if (problem_.k == 0) {
      FillEmptySums(args, problem_.dtype);
      continue;
    }
    std::string error = kernel.Call(args);
    if (!error.empty()) return error;
  }
  return {};
}

}  // namespace tf_tvm_ops
