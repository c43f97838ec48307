// From strided operands with broadcast batches to a problem and calls of its kernel.
#ifndef TF_TVM_OPS_CC_DISPATCH_PRODUCT_H_
#define TF_TVM_OPS_CC_DISPATCH_PRODUCT_H_

#include <array>
#include <cstdint>
#include <string>

#include "cc/dispatch/export.h"
#include "cc/dispatch/kernel.h"
#include "cc/dispatch/problem.h"

namespace tf_tvm_ops {

// Why no kernel serves a product. The names (RefusalName) are the vocabulary of logs, `explain`
// and tests.
enum class Refusal : uint8_t {
  kNone,          // a kernel serves it
  kNoKernel,      // no pack holds a kernel for the problem
  kLayout,        // neither dimension of an operand is contiguous
  kRank,          // more batch dimensions than kMaxBatchRank after merging
  kImage,         // the kernel's image could not be loaded
  kKernelFailed,  // the kernel failed when it was called
  kStockFaster,   // stock was measured faster than the kernel
  kConfigured     // the configuration asks for another implementation
};
TF_TVM_OPS_EXPORT const char* RefusalName(Refusal refusal);

// A matrix in each batch, as a pointer and strides in elements. Stride 0 broadcasts.
constexpr int kMaxBatchRank = 8;
struct Operand {
  const void* data = nullptr;
  int64_t row_stride = 0;
  int64_t column_stride = 0;
  std::array<int64_t, kMaxBatchRank> batch_strides{};
};

// out[..., m, n] = scale * sum over k of lhs[..., m, k] * rhs[..., k, n] + addend[..., m, n].
// Elements of `out` must not overlap; its column stride must be 1 (or n be 1). The column stride of
// `addend` must be 1, or 0 (or n be 1).
struct TF_TVM_OPS_EXPORT Product {
  DType dtype = DType::kFloat32;
  int64_t m = 0;
  int64_t n = 0;
  int64_t k = 0;
  int batch_rank = 0;
  std::array<int64_t, kMaxBatchRank> batch_shape{};
  Operand lhs;
  Operand rhs;
  Operand out;
  bool has_addend = false;  // to be set before AddBatchDim
  Operand addend;           // ignored without has_addend
  double scale = 1.0;

  // Appends an innermost batch dimension. One of extent 1 counts for nothing, and one over which
  // all operands go on as over the last one is merged with it. False, with nothing changed, if
  // there are kMaxBatchRank already.
  bool AddBatchDim(int64_t extent, int64_t lhs_stride, int64_t rhs_stride, int64_t out_stride,
                   int64_t addend_stride = 0);
};

// A product with its batch dimensions merged as far as the strides allow: the last two become
// the batch and heads of KernelArgs, the others are looped over.
class TF_TVM_OPS_EXPORT Plan {
 public:
  // Refusal::kNone and a usable plan, or the reason why there is none. Allocates nothing. The data
  // of the operands may still be null if Bind follows.
  static Refusal Make(const Product& product, Plan* plan);

  // Puts other data in the place of that of the product, laid out alike, so that one plan serves
  // many products. `addend` is ignored if the product has none.
  void Bind(const void* lhs, const void* rhs, const void* addend, void* out);

  const Problem& problem() const { return problem_; }
  // Number of matrices: [0, size()) is what Run may be asked for, in any partition.
  int64_t size() const { return size_; }

  // Computes matrices [begin, end) with a kernel found for problem() or for problem().Generic().
  // An empty sum (k = 0) is scale * 0 plus the addend, computed here without a call, so NaN if the
  // scale is not finite, as it would be from a kernel or from stock; kernels never see an extent of
  // 0. Returns an empty string, or what went wrong. Thread-safe; never throws.
  std::string Run(const Kernel& kernel, int64_t begin, int64_t end) const;

 private:
  Problem problem_;
  KernelArgs args_{};  // of the first stretch of batch * heads matrices
  int64_t size_ = 0;
  int64_t inner_size_ = 0;  // batch * heads of one kernel call
  int outer_rank_ = 0;
  std::array<int64_t, kMaxBatchRank> outer_shape_{};
  std::array<std::array<int64_t, kMaxBatchRank>, 4> outer_strides_{};  // lhs, rhs, out, addend
};

}  // namespace tf_tvm_ops

#endif  // TF_TVM_OPS_CC_DISPATCH_PRODUCT_H_
