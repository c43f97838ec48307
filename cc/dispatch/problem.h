// One product to compute: what, never how. The C++ twin of kernels/problem.py.
#ifndef TF_TVM_OPS_CC_DISPATCH_PROBLEM_H_
#define TF_TVM_OPS_CC_DISPATCH_PROBLEM_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "cc/dispatch/export.h"

namespace tf_tvm_ops {

enum class DType : uint8_t { kFloat32, kFloat16, kBfloat16, kFloat64 };

// The dimension of an operand whose elements are neighbours in memory.
enum class LhsContiguous : uint8_t { kK, kM };
enum class RhsContiguous : uint8_t { kN, kK };

// Their names in manifests and in Python, and back; a Parse that returns false leaves *value alone.
TF_TVM_OPS_EXPORT const char* Name(DType value);
TF_TVM_OPS_EXPORT const char* Name(LhsContiguous value);
TF_TVM_OPS_EXPORT const char* Name(RhsContiguous value);
TF_TVM_OPS_EXPORT bool Parse(std::string_view name, DType* value);
TF_TVM_OPS_EXPORT bool Parse(std::string_view name, LhsContiguous* value);
TF_TVM_OPS_EXPORT bool Parse(std::string_view name, RhsContiguous* value);

TF_TVM_OPS_EXPORT int64_t ElementBytes(DType dtype);

// The lookup key of a kernel: out[m, n] = sum over k of lhs[m, k] * rhs[k, n]. Batches, strides,
// scale and addend are left to run time: one kernel serves them all.
struct TF_TVM_OPS_EXPORT Problem {
  DType dtype = DType::kFloat32;
  LhsContiguous lhs_contiguous = LhsContiguous::kK;
  RhsContiguous rhs_contiguous = RhsContiguous::kN;
  int64_t m = 0;
  int64_t n = 0;
  int64_t k = 0;

  // The key of the generic kernel of the same kind: m, n and k are left to run time.
  Problem Generic() const {
    Problem generic = *this;
    generic.m = generic.n = generic.k = kRunTime;
    return generic;
  }
  bool is_generic() const { return m == kRunTime; }

  // One line, for logs and `explain`: "float32 17x17x64 lhs:k rhs:n".
  std::string ToString() const;

  static constexpr int64_t kRunTime = -1;
};

TF_TVM_OPS_EXPORT bool operator==(const Problem& a, const Problem& b);

struct TF_TVM_OPS_EXPORT ProblemHash {
  size_t operator()(const Problem& problem) const;
};

}  // namespace tf_tvm_ops

#endif  // TF_TVM_OPS_CC_DISPATCH_PROBLEM_H_
