#include "cc/python/matmul.h"

#include <algorithm>
#include <cstdint>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "cc/dispatch/product.h"
#include "cc/python/gil.h"

namespace tf_tvm_ops {
namespace {

namespace py = pybind11;

std::string ShapeText(const py::array& array) {
  return py::str(py::tuple(array.attr("shape"))).cast<std::string>();
}

py::array CheckedOperand(const char* name, const py::object& object) {
  if (!py::isinstance<py::array>(object)) {
    throw py::type_error(std::string(name) + ": expected a numpy.ndarray of float32, got " +
                         py::str(py::type::of(object).attr("__name__")).cast<std::string>() +
                         "; convert it with numpy.asarray(..., dtype='float32')");
  }
  auto array = py::reinterpret_borrow<py::array>(object);
  if (!py::isinstance<py::array_t<float>>(array)) {
    throw py::type_error(std::string(name) + ": expected dtype float32, got " +
                         py::str(array.dtype()).cast<std::string>() +
                         "; convert it with .astype('float32')");
  }
  if (array.ndim() < 2) {
    throw py::value_error(std::string(name) + ": expected 2 or more dimensions, got shape " +
                          ShapeText(array));
  }
  return array;
}

py::array CheckedOutput(const py::object& object, const std::vector<py::ssize_t>& shape) {
  py::array array = CheckedOperand("out", object);
  const auto rank = static_cast<size_t>(array.ndim());
  if (rank != shape.size() || !std::equal(shape.begin(), shape.end(), array.shape())) {
    py::tuple expected(shape.size());
    for (size_t i = 0; i < shape.size(); ++i) expected[i] = shape[i];
    throw py::value_error("out: expected shape " + py::str(expected).cast<std::string>() +
                          ", got " + ShapeText(array));
  }
  if (!array.writeable()) throw py::value_error("out: expected a writeable array");
  return array;
}

// The batch shape that both broadcast to.
std::vector<py::ssize_t> BroadcastBatch(const py::array& lhs, const py::array& rhs) {
  const py::ssize_t lhs_rank = lhs.ndim() - 2;
  const py::ssize_t rhs_rank = rhs.ndim() - 2;
  const py::ssize_t rank = std::max(lhs_rank, rhs_rank);
  std::vector<py::ssize_t> batch(static_cast<size_t>(rank));
  for (py::ssize_t i = 0; i < rank; ++i) {
    const py::ssize_t lhs_extent = i < rank - lhs_rank ? 1 : lhs.shape(i - (rank - lhs_rank));
    const py::ssize_t rhs_extent = i < rank - rhs_rank ? 1 : rhs.shape(i - (rank - rhs_rank));
    if (lhs_extent != rhs_extent && lhs_extent != 1 && rhs_extent != 1) {
      throw py::value_error("the batch dimensions of lhs of shape " + ShapeText(lhs) +
                            " and rhs of shape " + ShapeText(rhs) + " cannot be broadcast");
    }
    batch[static_cast<size_t>(i)] = lhs_extent == 1 ? rhs_extent : lhs_extent;
  }
  return batch;
}

constexpr py::ssize_t kElementBytes = sizeof(float);

// The strides of the matrices, in elements. False if the address, or a stride that matters, is no
// whole number of elements.
bool FillOperand(const py::array& array, Operand* operand) {
  operand->data = array.data();
  if (reinterpret_cast<uintptr_t>(operand->data) % alignof(float) != 0) return false;
  const py::ssize_t rank = array.ndim();
  for (py::ssize_t i = 0; i < rank; ++i) {
    if (array.shape(i) > 1 && array.strides(i) % kElementBytes != 0) return false;
  }
  operand->row_stride = array.strides(rank - 2) / kElementBytes;
  operand->column_stride = array.strides(rank - 1) / kElementBytes;
  return true;
}

// The stride of batch dimension `i` of `batch_rank`, in elements; 0 where the array is broadcast.
int64_t BatchStride(const py::array& array, py::ssize_t i, py::ssize_t batch_rank) {
  const py::ssize_t own = i - (batch_rank - (array.ndim() - 2));
  return own < 0 || array.shape(own) == 1 ? 0 : array.strides(own) / kElementBytes;
}

// Fills in all but m, n and k. Returns Refusal::kNone or the reason against.
Refusal FillProduct(const py::array& lhs, const py::array& rhs, const py::array& out,
                    Product* product) {
  if (!FillOperand(lhs, &product->lhs) || !FillOperand(rhs, &product->rhs) ||
      !FillOperand(out, &product->out)) {
    return Refusal::kLayout;
  }
  const py::ssize_t batch_rank = out.ndim() - 2;
  for (py::ssize_t i = 0; i < batch_rank; ++i) {
    if (!product->AddBatchDim(out.shape(i), BatchStride(lhs, i, batch_rank),
                              BatchStride(rhs, i, batch_rank), BatchStride(out, i, batch_rank))) {
      return Refusal::kRank;
    }
  }
  return Refusal::kNone;
}

const Kernel* ChooseKernel(const Dispatcher& dispatcher, const Problem& problem, bool generic_only,
                           Refusal* refusal) {
  if (!generic_only) {
    const Kernel* exact = dispatcher.FindReady(problem, refusal);
    if (exact != nullptr) return exact;
  }
  // An image that failed is the more telling reason than that there is no other kernel.
  Refusal generic_refusal = Refusal::kNone;
  const Kernel* generic = dispatcher.FindReady(problem.Generic(), &generic_refusal);
  if (generic == nullptr && *refusal != Refusal::kImage) *refusal = generic_refusal;
  return generic;
}

// Parts of equal size, one a thread, the first in this one. Returns the first error.
std::string RunOnThreads(const Plan& plan, const Kernel& kernel, int threads) {
  const auto count = static_cast<int>(std::clamp<int64_t>(plan.size(), 1, threads));
  std::vector<std::string> errors(static_cast<size_t>(count));
  const auto part = [&](int index) {
    errors[static_cast<size_t>(index)] =
        plan.Run(kernel, plan.size() * index / count, plan.size() * (index + 1) / count);
  };
  std::vector<std::thread> workers;
  for (int index = 1; index < count; ++index) {
    try {
      workers.emplace_back(part, index);
    } catch (const std::system_error&) {  // no thread to be had
      part(index);
    }
  }
  part(0);
  for (std::thread& worker : workers) worker.join();
  for (const std::string& error : errors) {
    if (!error.empty()) return error;
  }
  return {};
}

}  // namespace

void ThrowLookupError(const std::string& message) {
  PyErr_SetString(PyExc_LookupError, message.c_str());
  throw py::error_already_set();
}

MatMulResult MatMul(const Dispatcher& dispatcher, const py::object& lhs_object,
                    const py::object& rhs_object, const py::object& out_object, int threads,
                    const std::string& choice) {
  if (threads < 1) {
    throw py::value_error("threads: expected 1 or more, got " + std::to_string(threads));
  }
  if (choice != "auto" && choice != "generic") {
    throw py::value_error("kernel: expected 'auto' or 'generic', got '" + choice + "'");
  }
  const py::array lhs = CheckedOperand("lhs", lhs_object);
  const py::array rhs = CheckedOperand("rhs", rhs_object);
  Product product;
  product.m = lhs.shape(lhs.ndim() - 2);
  product.k = lhs.shape(lhs.ndim() - 1);
  product.n = rhs.shape(rhs.ndim() - 1);
  if (rhs.shape(rhs.ndim() - 2) != product.k) {
    throw py::value_error("lhs of shape " + ShapeText(lhs) + " has " + std::to_string(product.k) +
                          " columns, but rhs of shape " + ShapeText(rhs) + " has " +
                          std::to_string(rhs.shape(rhs.ndim() - 2)) + " rows");
  }
  std::vector<py::ssize_t> out_shape = BroadcastBatch(lhs, rhs);
  out_shape.push_back(product.m);
  out_shape.push_back(product.n);
  MatMulResult result;
  result.out =
      out_object.is_none() ? py::array_t<float>(out_shape) : CheckedOutput(out_object, out_shape);
  if (result.out.size() == 0) return result;

  Plan plan;
  Refusal refusal = FillProduct(lhs, rhs, result.out, &product);
  if (refusal == Refusal::kNone) refusal = Plan::Make(product, &plan);
  std::string error;
  if (refusal == Refusal::kNone) {
    // Opening an image may take a while, and so may the product.
    WithoutGil([&] {
      result.kernel = ChooseKernel(dispatcher, plan.problem(), choice == "generic", &refusal);
      if (result.kernel != nullptr) error = RunOnThreads(plan, *result.kernel, threads);
    });
  }
  if (result.kernel == nullptr) {
    ThrowLookupError("no kernel serves lhs of shape " + ShapeText(lhs) + " and rhs of shape " +
                     ShapeText(rhs) + ": " + RefusalName(refusal));
  }
  if (!error.empty()) throw std::runtime_error(error);
  return result;
}

}  // namespace tf_tvm_ops
