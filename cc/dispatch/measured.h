// What was measured of a pack's kernels when it was tuned, and what it says of a product at hand.
#ifndef TF_TVM_OPS_CC_DISPATCH_MEASURED_H_
#define TF_TVM_OPS_CC_DISPATCH_MEASURED_H_

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "cc/dispatch/export.h"

namespace tf_tvm_ops {

// What follows a product, and is an op of its own in stock: nothing, scale and addend, or a
// transpose.
enum class Epilogue : uint8_t { kNone, kAdd, kTranspose };
bool Parse(std::string_view name, Epilogue* epilogue);

// How a kernel did against stock: neither was faster by more than the noise, the kernel was, stock
// was, or stock ended the process that measured. Of several settings, that one counts whose outcome
// is named last here.
enum class Outcome : uint8_t { kTied, kWon, kLost, kStockFailed };

// For one number of matrices, in every setting measured.
struct Duel {
  int64_t matrices = 0;
  Epilogue epilogue = Epilogue::kNone;
  Outcome onednn = Outcome::kTied;
  Outcome eigen = Outcome::kTied;
};

// The duels of one kernel.
class TF_TVM_OPS_EXPORT Duels {
 public:
  // One that was fought in several settings has to be won in one and lost in none, unless stock
  // failed in any.
  void Add(const Duel& duel);

  // Whether the kernel is expected to beat stock, or stock to fail: as it was with the number of
  // matrices nearest to this one. Without a duel for the epilogue, what a kernel wins bare it wins
  // fused, where stock pays passes over memory on top. A kernel that was not measured is expected
  // to win.
  bool ExpectedToWin(int64_t matrices, Epilogue epilogue, bool onednn) const;

 private:
  std::vector<Duel> duels_;
};

// Microseconds of an op, fitted to measurements by kernels/tuning/fallback_model.py, which has the
// same features.
struct TF_TVM_OPS_EXPORT TimeModel {
  static constexpr int kFeatures = 8;
  std::array<double, kFeatures> weights{};

  double Microseconds(int64_t matrices, int64_t m, int64_t n, int64_t k) const;
};

// What the generic kernel and stock are expected to take.
struct TF_TVM_OPS_EXPORT FallbackModel {
  TimeModel kernel;
  TimeModel onednn;
  TimeModel eigen;
  // An op of stock's that passes over the product once more: for itself, and for each element.
  std::array<double, 2> pass{};

  // `passes`: what stock needs after, or before, the product.
  bool KernelExpectedToWin(int64_t matrices, int64_t m, int64_t n, int64_t k, int passes,
                           bool against_onednn) const;
};

}  // namespace tf_tvm_ops

#endif  // TF_TVM_OPS_CC_DISPATCH_MEASURED_H_
