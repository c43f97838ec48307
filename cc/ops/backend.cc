#include "cc/ops/backend.h"

#include <array>

#include "cc/dispatch/dispatcher.h"
#include "cc/dispatch/kernel.h"
#include "cc/ops/gpu_description.h"
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

// Multiply-adds that take about as long as what stock spends on a call before it computes.
constexpr int64_t kFewMultiplyAdds = 1 << 17;

// For packs that were not tuned. As measured with tools/bench on a machine with AVX-512, batches of
// 1 to 2048, M and N of 1 to 2048, K of 8 to 768; with passes, attention of 12 and 96 heads,
// lengths of 7 to 512.
bool GenericPaysOnCpu(const MatMulShapes& shapes, int64_t matrices) {
  const Product& product = shapes.product;
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

// Multiply-adds of a matrix that take less time than passes over its operands: 64 of each extent.
constexpr int64_t kSmallMatrix = 1 << 18;

// Not measured: no figures of a GPU stand behind this. cuBLAS is left what it is made for, plain
// products and large ones, also because launches of a kernel and of cuBLAS cost the same; a pass
// over memory less, and its launch, is what the generic kernel can win.
bool GenericPaysOnGpu(const MatMulShapes& shapes, int64_t /*matrices*/) {
  const Product& product = shapes.product;
  const bool saves_passes = product.scale != 1 || product.has_addend || shapes.reordered;
  return saves_passes && product.m * product.n * product.k <= kSmallMatrix;
}

bool FacesNoOneDnn(const MatMulShapes& /*shapes*/) { return false; }

}  // namespace

const Backend& CpuBackend() {
  static const Backend cpu{&Dispatcher::Global().cpu(), 0, &GenericPaysOnCpu, &FacesOneDnn};
  return cpu;
}

Backend GpuBackend(const tensorflow::DeviceAttributes& device) {
  GpuDescription gpu = DescribeGpu(device);
  if (gpu.device < 0 || gpu.device >= kMaxDevices) gpu = {};
  return {&Dispatcher::Global().gpu(gpu.capability), gpu.device, &GenericPaysOnGpu, &FacesNoOneDnn};
}

}  // namespace tf_tvm_ops
