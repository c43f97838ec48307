#include "cc/ops/choice.h"

#include "absl/strings/str_cat.h"
#include "cc/dispatch/config.h"

namespace tf_tvm_ops {
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

Choice Choose(const Backend& backend, const MatMulShapes& shapes, Fallback fallback) {
  Choice choice;
  const Product& product = shapes.product;
  if (product.k == 0 || shapes.output.num_elements() == 0) {
    choice.server = Server::kZeros;
    return choice;
  }
  choice.refusal = shapes.refusal;
  if (choice.refusal == Refusal::kNone) choice.refusal = Plan::Make(product, &choice.plan);
  // A kernel would round to 16 bits before the addend is added; stock can be asked for float32.
  if (shapes.enlarged && ElementBytes(product.dtype) == 2) choice.refusal = Refusal::kLayout;
  if (choice.refusal != Refusal::kNone) return choice;

  const Problem& problem = choice.plan.problem();
  choice.kernel = backend.kernels->FindReady(problem, &choice.refusal);
  if (choice.kernel == nullptr && fallback != Fallback::kStock &&
      (fallback == Fallback::kGeneric || backend.generic_pays(shapes, choice.plan.size()))) {
    Refusal no_generic;
    choice.kernel = backend.kernels->FindReady(problem.Generic(), &no_generic);
  }
  if (choice.kernel != nullptr) choice.server = Server::kKernel;
  return choice;
}

}  // namespace tf_tvm_ops
