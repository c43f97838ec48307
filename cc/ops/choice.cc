#include "cc/ops/choice.h"

#include <array>

#include "absl/strings/str_cat.h"
#include "cc/dispatch/config.h"
#include "cc/ops/stock_kernel.h"
#include "tensorflow/core/framework/types.pb.h"

namespace tf_tvm_ops {
namespace {

// Whether stock would use oneDNN for the product: it is given plain products only.
bool FacesOneDnn(const MatMulShapes& shapes) {
  static const std::array<bool, 4> takes{
      OneDnnTakes(tensorflow::DT_FLOAT), OneDnnTakes(tensorflow::DT_HALF),
      OneDnnTakes(tensorflow::DT_BFLOAT16), OneDnnTakes(tensorflow::DT_DOUBLE)};
  return shapes.is_plain() && takes[static_cast<size_t>(shapes.product.dtype)];
}

// What stock would do in ops of their own, as far as duels tell it apart: both scale and addend, or
// transposes.
Epilogue EpilogueOf(const MatMulShapes& shapes) {
  if (shapes.product.scale != 1 && shapes.product.has_addend) return Epilogue::kAdd;
  return shapes.reordered ? Epilogue::kTranspose : Epilogue::kNone;
}

// Multiply-adds that take about as long as what stock spends on a call before it computes.
constexpr int64_t kFewMultiplyAdds = 1 << 17;

// For packs that were not tuned. As measured with tools/bench on a machine with AVX-512, batches of
// 1 to 2048, M and N of 1 to 2048, K of 8 to 768; with passes, attention of 12 and 96 heads,
// lengths of 7 to 512.
bool GenericExpectedFaster(const MatMulShapes& shapes, int64_t matrices,
                           const FallbackModel* model) {
  const Product& product = shapes.product;
  if (model != nullptr) {
    const int passes = (product.scale != 1) + product.has_addend + shapes.reordered;
    return model->KernelExpectedToWin(matrices, product.m, product.n, product.k, passes,
                                      FacesOneDnn(shapes));
  }
  const int64_t matrix = product.m * product.n * product.k;
  if (matrix * matrices <= kFewMultiplyAdds) return true;
  switch (product.dtype) {
    case DType::kFloat32: {
      // Passes over memory that the kernel does without, of operands and of the product.
      if (product.scale != 1 || product.has_addend || shapes.reordered) return true;
      // Neither oneDNN nor Eigen is at its best with a single row, unless it is a long one that
      // they share among threads.
      if (product.m == 1) return matrix <= kFewMultiplyAdds;
      // oneDNN blocks better than a kernel of unknown extents can. Eigen, which also serves
      // broadcast batches, takes one matrix at a time.
      return !FacesOneDnn(shapes) && matrices > 1;
    }
    case DType::kBfloat16:
    case DType::kFloat16: {
      // oneDNN uses instructions that generic kernels do not, except for a single row. With scale
      // or addend its operands would have to be converted to float32 first.
      return !FacesOneDnn(shapes) || product.m == 1 || product.scale != 1 || product.has_addend;
    }
    case DType::kFloat64:
      break;
  }
  return true;
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
  // A kernel would round to 16 bits before the addend is added; stock can be asked for float32.
  if (shapes.enlarged && ElementBytes(product.dtype) == 2) choice.refusal = Refusal::kLayout;
  if (choice.refusal != Refusal::kNone) return choice;

  const Problem& problem = choice.plan.problem();
  const int64_t matrices = choice.plan.size();
  choice.kernel = dispatcher.FindReady(problem, &choice.refusal);
  if (choice.kernel != nullptr) {
    if (!choice.kernel->duels().ExpectedToWin(matrices, EpilogueOf(shapes), FacesOneDnn(shapes))) {
      choice.kernel = nullptr;
      choice.refusal = Refusal::kStockFaster;
    }
  } else if (fallback != Fallback::kStock) {
    Refusal no_generic;
    const Kernel* generic = dispatcher.FindReady(problem.Generic(), &no_generic);
    if (generic != nullptr && (fallback == Fallback::kGeneric ||
                               GenericExpectedFaster(shapes, matrices, generic->model()))) {
      choice.kernel = generic;
    }
  }
  if (choice.kernel != nullptr) choice.server = Server::kKernel;
  return choice;
}

}  // namespace tf_tvm_ops
