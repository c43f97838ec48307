#include "cc/dispatch/product.h"

#include <algorithm>
#include <cstddef>
#include <cstring>

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

const char* Offset(const void* data, int64_t bytes) {
  return static_cast<const char*>(data) + bytes;
}

// The empty sum is zero. No kernel is asked for it, so kernels may take their first k as given.
void FillZero(const KernelArgs& args, int64_t m, int64_t n, int64_t element_bytes) {
  for (int64_t i = args.begin; i < args.end; ++i) {
    const int64_t offset =
        i / args.heads * args.out_batch_stride + i % args.heads * args.out_head_stride;
    for (int64_t row = 0; row < m; ++row) {
      char* out = static_cast<char*>(args.out) + (offset + row * args.out_stride) * element_bytes;
      std::memset(out, 0, static_cast<size_t>(n * element_bytes));
    }
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
    case Refusal::kConfigured:
      return "configured";
  }
  return "unknown";
}

bool Product::AddBatchDim(int64_t extent, int64_t lhs_stride, int64_t rhs_stride,
                          int64_t out_stride) {
  if (extent == 1) return true;
  const int last = batch_rank - 1;
  const bool merges = last >= 0 && GoesOn(lhs.batch_strides[last], lhs_stride, extent) &&
                      GoesOn(rhs.batch_strides[last], rhs_stride, extent) &&
                      GoesOn(out.batch_strides[last], out_stride, extent);
  if (!merges && batch_rank == kMaxBatchRank) return false;
  const int at = merges ? last : batch_rank++;
  batch_shape[at] = merges ? batch_shape[at] * extent : extent;
  lhs.batch_strides[at] = lhs_stride;
  rhs.batch_strides[at] = rhs_stride;
  out.batch_strides[at] = out_stride;
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
      (product.out.column_stride != 1 && product.n > 1)) {
    return Refusal::kLayout;
  }
  args.lhs = product.lhs.data;
  args.rhs = product.rhs.data;
  args.out = const_cast<void*>(product.out.data);
  args.out_stride = product.out.row_stride;
  args.m = product.m;
  args.n = product.n;
  args.k = product.k;

  Product merged;
  for (int i = 0; i < product.batch_rank; ++i) {
    merged.AddBatchDim(product.batch_shape[i], product.lhs.batch_strides[i],
                       product.rhs.batch_strides[i], product.out.batch_strides[i]);
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
  }
  if (rank > 0) {
    --rank;
    batch = merged.batch_shape[rank];
    args.lhs_batch_stride = merged.lhs.batch_strides[rank];
    args.rhs_batch_stride = merged.rhs.batch_strides[rank];
    args.out_batch_stride = merged.out.batch_strides[rank];
  }

  plan->problem_ = problem;
  plan->args_ = args;
  plan->inner_size_ = batch * args.heads;
  plan->outer_rank_ = rank;
  plan->outer_shape_ = merged.batch_shape;
  plan->outer_strides_ = {merged.lhs.batch_strides, merged.rhs.batch_strides,
                          merged.out.batch_strides};
  plan->size_ = plan->inner_size_;
  for (int i = 0; i < rank; ++i) plan->size_ *= merged.batch_shape[i];
  return Refusal::kNone;
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
    std::array<int64_t, 3> offsets{};  // in elements: lhs, rhs, out
    for (int dim = outer_rank_ - 1; dim >= 0; --dim) {
      const int64_t index = outer % outer_shape_[dim];
      outer /= outer_shape_[dim];
      for (size_t i = 0; i < offsets.size(); ++i) offsets[i] += index * outer_strides_[i][dim];
    }
    args.lhs = Offset(args_.lhs, offsets[0] * element_bytes);
    args.rhs = Offset(args_.rhs, offsets[1] * element_bytes);
    args.out = const_cast<char*>(Offset(args_.out, offsets[2] * element_bytes));
    if (problem_.k == 0) {
      FillZero(args, problem_.m, problem_.n, element_bytes);
      continue;
    }
    std::string error = kernel.Call(args);
    if (!error.empty()) return error;
  }
  return {};
}

}  // namespace tf_tvm_ops
