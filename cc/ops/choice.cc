#include "cc/ops/choice.h"

#include "absl/strings/str_cat.h"
#include "cc/dispatch/config.h"
#include "tensorflow/core/util/util.h"

namespace tf_tvm_ops {
namespace {

// Multiply-adds that take about as long as what stock spends on a call before it computes.
constexpr int64_t kFewMultiplyAdds = 1 << 17;

// As measured with tools/bench on a machine with AVX-512, batches of 1 to 512, M and N of 1 to
// 512, K of 11 to 512.
bool GenericExpectedFaster(const Plan& plan) {
  static const bool onednn = tensorflow::IsMKLEnabled();
  const Problem& problem = plan.problem();
  const int64_t matrix = problem.m * problem.n * problem.k;
  if (matrix * plan.size() <= kFewMultiplyAdds) return true;
  // Neither oneDNN nor Eigen is at its best with a single row, unless it is a long one that they
  // share among threads.
  if (problem.m == 1) return matrix <= kFewMultiplyAdds;
  // oneDNN blocks better than a kernel of unknown extents can; Eigen takes one matrix at a time.
  return !onednn && plan.size() > 1;
}

}  // namespace

Fallback FallbackInForce() {
  const std::string value = config::Fallback();
  if (value == "generic") return Fallback::kGeneric;
  if (value == "stock") return Fallback::kStock;
  return Fallback::kAuto;
}

std::string Choice::ToString() const {
  switch (server) {
    case Server::kKernel:
      return kernel->symbol();
    case Server::kZeros:
      return "zeros";
    case Server::kStock:
      break;
  }
  return absl::StrCat("stock (", RefusalName(refusal), ")");
}

Choice Choose(const Dispatcher& dispatcher, const MatMulShapes& shapes, Fallback fallback) {
  Choice choice;
  const Product& product = shapes.product;
  if (product.k == 0 || shapes.output.num_elements() == 0) {
    choice.server = Server::kZeros;
    return choice;
  }
  choice.refusal = shapes.refusal;
  if (choice.refusal == Refusal::kNone) choice.refusal = Plan::Make(product, &choice.plan);
  if (choice.refusal != Refusal::kNone) return choice;

  const Problem& problem = choice.plan.problem();
  choice.kernel = dispatcher.FindReady(problem, &choice.refusal);
  if (choice.kernel == nullptr && fallback != Fallback::kStock &&
      (fallback == Fallback::kGeneric || GenericExpectedFaster(choice.plan))) {
    Refusal no_generic;
    choice.kernel = dispatcher.FindReady(problem.Generic(), &no_generic);
  }
  if (choice.kernel != nullptr) choice.server = Server::kKernel;
  return choice;
}

}  // namespace tf_tvm_ops
