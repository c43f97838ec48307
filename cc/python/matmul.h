// NumPy arrays in, the dispatcher's kernels, NumPy arrays out.
#ifndef TF_TVM_OPS_CC_PYTHON_MATMUL_H_
#define TF_TVM_OPS_CC_PYTHON_MATMUL_H_

#include <pybind11/numpy.h>

#include <string>

#include "cc/dispatch/dispatcher.h"

namespace tf_tvm_ops {

struct MatMulResult {
  pybind11::array out;
  const Kernel* kernel = nullptr;  // null if the result has no elements, so that none was needed
};

// numpy.matmul of float32 arrays of two or more dimensions, by a kernel of the dispatcher. The
// result is put into `out`, which must overlap nothing, or into a new array if that is None.
// `choice` is "auto" (the kernel for the problem, else the generic one) or "generic". Throws the
// pybind11 exception for TypeError or ValueError if the operands do not fit, LookupError naming the
// refusal if no kernel does, std::runtime_error if the kernel fails.
MatMulResult MatMul(const Dispatcher& dispatcher, const pybind11::object& lhs,
                    const pybind11::object& rhs, const pybind11::object& out, int threads,
                    const std::string& choice);

// A Python exception that pybind11 has no C++ class for.
[[noreturn]] void ThrowLookupError(const std::string& message);

}  // namespace tf_tvm_ops

#endif  // TF_TVM_OPS_CC_PYTHON_MATMUL_H_
