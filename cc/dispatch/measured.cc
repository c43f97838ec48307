#include "cc/dispatch/measured.h"

#include <algorithm>

namespace tf_tvm_ops {
namespace {

// How many times larger one number is than the other.
double Distance(int64_t a, int64_t b) {
  return static_cast<double>(std::max(a, b)) /
         static_cast<double>(std::max<int64_t>(1, std::min(a, b)));
}

}  // namespace

bool Parse(std::string_view name, Epilogue* epilogue) {
  if (name == "none") {
    *epilogue = Epilogue::kNone;
  } else if (name == "add") {
    *epilogue = Epilogue::kAdd;
  } else if (name == "transpose") {
    *epilogue = Epilogue::kTranspose;
  } else {
    return false;
  }
  return true;
}

void Duels::Add(const Duel& duel) {
  for (Duel& other : duels_) {
    if (other.matrices == duel.matrices && other.epilogue == duel.epilogue) {
      other.onednn = std::max(other.onednn, duel.onednn);
      other.eigen = std::max(other.eigen, duel.eigen);
      return;
    }
  }
  duels_.push_back(duel);
}

bool Duels::ExpectedToWin(int64_t matrices, Epilogue epilogue, bool onednn) const {
  if (duels_.empty()) return true;
  int64_t nearest = duels_.front().matrices;
  for (const Duel& duel : duels_) {
    if (Distance(duel.matrices, matrices) < Distance(nearest, matrices)) nearest = duel.matrices;
  }
  // What was measured fused says more than what was measured bare.
  bool wins = false;
  for (const Duel& duel : duels_) {
    if (duel.matrices != nearest) continue;
    const Outcome outcome = onednn ? duel.onednn : duel.eigen;
    const bool won = outcome == Outcome::kWon || outcome == Outcome::kStockFailed;
    if (duel.epilogue == epilogue) return won;
    if (duel.epilogue == Epilogue::kNone) wins = won;
  }
  return wins;
}

double TimeModel::Microseconds(int64_t matrices, int64_t m, int64_t n, int64_t k) const {
  constexpr double kLanes = 16;
  const auto vectors = [](double extent) {
    return static_cast<double>(static_cast<int64_t>((extent + kLanes - 1) / kLanes));
  };
  const auto rows = static_cast<double>(m);
  const auto columns = static_cast<double>(n);
  const auto depth = static_cast<double>(k);
  const std::array<double, kFeatures> features{0,
                                               1,
                                               rows * columns * depth,
                                               rows * vectors(columns) * depth,
                                               rows * columns * vectors(depth),
                                               rows * depth + depth * columns + rows * columns,
                                               depth * columns,
                                               rows};
  double each = 0;
  for (int i = 1; i < kFeatures; ++i) each += weights[i] * features[i];
  return weights[0] + static_cast<double>(matrices) * each;
}

bool FallbackModel::KernelExpectedToWin(int64_t matrices, int64_t m, int64_t n, int64_t k,
                                        int passes, bool against_onednn) const {
  const TimeModel& stock = against_onednn ? onednn : eigen;
  const double elements =
      static_cast<double>(matrices) * static_cast<double>(m) * static_cast<double>(n);
  return kernel.Microseconds(matrices, m, n, k) <
         stock.Microseconds(matrices, m, n, k) + passes * (pass[0] + pass[1] * elements);
}

}  // namespace tf_tvm_ops
