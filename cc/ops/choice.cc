#include "cc/ops/choice.h"

#include "absl/strings/str_cat.h"
#include "cc/dispatch/config.h"

namespace tf_tvm_ops {
namespace {

// What stock would do in ops of their own, as far as duels tell it apart: both scale and addend, or
// transposes.
Epilogue EpilogueOf(const MatMulShapes& shapes) {
  if (shapes.product.scale != 1 && shapes.product.has_addend) return Epilogue::kAdd;
  return shapes.reordered ? Epilogue::kTranspose : Epilogue::kNone;
}

bool GenericPays(const Backend& backend, const MatMulShapes& shapes, int64_t matrices,
                 const FallbackModel* model) {
  if (model == nullptr) return backend.generic_pays(shapes, matrices);
  const Product& product = shapes.product;
  const int passes = (product.scale != 1) + product.has_addend + shapes.reordered;
  return model->KernelExpectedToWin(matrices, product.m, product.n, product.k, passes,
                                    backend.faces_onednn(shapes));
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
  const int64_t matrices = choice.plan.size();
  choice.kernel = backend.kernels->FindReady(problem, backend.device, &choice.refusal);
  if (choice.kernel != nullptr) {
    const bool onednn = backend.faces_onednn(shapes);
    if (!choice.kernel->duels().ExpectedToWin(matrices, EpilogueOf(shapes), onednn)) {
      choice.kernel = nullptr;
      choice.refusal = Refusal::kStockFaster;
    }
  } else if (fallback != Fallback::kStock) {
    // Not FindReady: an image is opened when a kernel of it is wanted.
    const Kernel* generic = backend.kernels->Find(problem.Generic(), backend.device);
    if (generic != nullptr && (fallback == Fallback::kGeneric ||
                               GenericPays(backend, shapes, matrices, generic->model()))) {
      Refusal no_generic = Refusal::kNone;
      choice.kernel = backend.kernels->FindReady(problem.Generic(), backend.device, &no_generic);
      // That it failed tells more than that there was no other.
      if (no_generic == Refusal::kKernelFailed) choice.refusal = no_generic;
    }
  }
  if (choice.kernel != nullptr) choice.server = Server::kKernel;
  return choice;
}

}  // namespace tf_tvm_ops
