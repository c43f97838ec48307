// NumPy arrays in, the dispatcher's kernels, NumPy arrays out.
#ifndef TF_TVM_OPS_CC_PYTHON_MATMUL_H_
#define TF_TVM_OPS_CC_PYTHON_MATMUL_H_

#include <pybind11/numpy.h>

#include <optional>
#include <string>

#include "cc/dispatch/cuda_launch.h"
#include "cc/dispatch/dispatcher.h"

namespace tf_tvm_ops {

// A GPU to compute on, which reaches the memory of the arrays.
struct Gpu {
  ComputeCapability capability;
  CudaStream stream;
};

struct MatMulOptions {
  pybind11::object addend = pybind11::none();  // None adds nothing
  double scale = 1.0;
  pybind11::object out = pybind11::none();  // None makes a new array
  int threads = 1;
  std::string kernel = "auto";  // the one for the problem, else the generic one; or "generic"
  std::optional<Gpu> gpu;       // computes on it, without waiting for it, in place of `threads`
};

struct MatMulResult {
  pybind11::array out;
  const Kernel* kernel = nullptr;  // null if the result has no elements, so that none was needed
};

// scale * numpy.matmul(lhs, rhs) + addend, by a kernel of the dispatcher. The arrays are of one of
// the types of DType, all the same, and lhs and rhs of two or more dimensions; the addend is
// broadcast to the result, and copied first if kernels do not take its strides. `out` must overlap
// nothing. Throws the pybind11 exception for TypeError or ValueError if the operands do not fit,
// LookupError naming the refusal if no kernel does, std::runtime_error if the kernel fails.
MatMulResult MatMul(const Dispatcher& dispatcher, const pybind11::object& lhs,
                    const pybind11::object& rhs, const MatMulOptions& options);

// A Python exception that pybind11 has no C++ class for.
[[noreturn]] void ThrowLookupError(const std::string& message);

}  // namespace tf_tvm_ops

#endif  // TF_TVM_OPS_CC_PYTHON_MATMUL_H_
