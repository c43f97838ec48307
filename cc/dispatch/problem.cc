#include "cc/dispatch/problem.h"

#include <array>

namespace tf_tvm_ops {
namespace {

// The names of an enum whose values count from 0.
constexpr std::array<const char*, 4> kDTypeNames{"float32", "float16", "bfloat16", "float64"};
constexpr std::array<int64_t, 4> kDTypeBytes{4, 2, 2, 8};
constexpr std::array<const char*, 2> kLhsNames{"k", "m"};
constexpr std::array<const char*, 2> kRhsNames{"n", "k"};

template <typename Enum, size_t N>
bool ParseFrom(const std::array<const char*, N>& names, std::string_view name, Enum* value) {
  for (size_t i = 0; i < N; ++i) {
    if (name == names[i]) {
      *value = static_cast<Enum>(i);
      return true;
    }
  }
  return false;
}

}  // namespace

const char* Name(DType value) { return kDTypeNames[static_cast<size_t>(value)]; }
const char* Name(LhsContiguous value) { return kLhsNames[static_cast<size_t>(value)]; }
const char* Name(RhsContiguous value) { return kRhsNames[static_cast<size_t>(value)]; }

bool Parse(std::string_view name, DType* value) { return ParseFrom(kDTypeNames, name, value); }
bool Parse(std::string_view name, LhsContiguous* value) {
  return ParseFrom(kLhsNames, name, value);
}
bool Parse(std::string_view name, RhsContiguous* value) {
  return ParseFrom(kRhsNames, name, value);
}

int64_t ElementBytes(DType dtype) { return kDTypeBytes[static_cast<size_t>(dtype)]; }

std::string Problem::ToString() const {
  std::string text = Name(dtype);
  if (is_generic()) {
    text += " generic";
  } else {
    text += " " + std::to_string(m) + "x" + std::to_string(n) + "x" + std::to_string(k);
  }
  text += std::string(" lhs:") + Name(lhs_contiguous) + " rhs:" + Name(rhs_contiguous);
  return text;
}

bool operator==(const Problem& a, const Problem& b) {
  return a.m == b.m && a.n == b.n && a.k == b.k && a.dtype == b.dtype &&
         a.lhs_contiguous == b.lhs_contiguous && a.rhs_contiguous == b.rhs_contiguous;
}

size_t ProblemHash::operator()(const Problem& problem) const {
  // Extents are small and alike, so each is spread over all bits before the next one is added; the
  // multiplier is 2^64 divided by the golden ratio.
  constexpr uint64_t kSpread = 0x9E3779B97F4A7C15u;
  uint64_t hash = static_cast<uint64_t>(problem.dtype) |
                  static_cast<uint64_t>(problem.lhs_contiguous) << 8 |
                  static_cast<uint64_t>(problem.rhs_contiguous) << 16;
  for (const int64_t extent : {problem.m, problem.n, problem.k}) {
    hash = (hash ^ static_cast<uint64_t>(extent)) * kSpread;
    hash ^= hash >> 32;
  }
  return static_cast<size_t>(hash);
}

}  // namespace tf_tvm_ops
