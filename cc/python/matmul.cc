#include "cc/python/matmul.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "cc/dispatch/product.h"
#include "cc/python/gil.h"

namespace tf_tvm_ops {
namespace {

namespace py = pybind11;

constexpr char kDTypesText[] = "float32, float16, bfloat16 or float64";

std::string Text(const py::handle& object) { return py::str(object).cast<std::string>(); }

std::string ShapeText(const py::array& array) { return Text(array.attr("shape")); }

std::string ShapeText(const std::vector<py::ssize_t>& shape) {
  py::tuple tuple(shape.size());
  for (size_t i = 0; i < shape.size(); ++i) tuple[i] = shape[i];
  return Text(tuple);
}

py::array CheckedArray(const char* name, const py::object& object) {
  if (py::isinstance<py::array>(object)) return py::reinterpret_borrow<py::array>(object);
  throw py::type_error(std::string(name) + ": expected a numpy.ndarray of " + kDTypesText +
                       ", got " + Text(py::type::of(object).attr("__name__")) +
                       "; convert it with numpy.asarray(..., dtype='float32')");
}

// The type of scalars is asked for its name, since NumPy knows nothing more of bfloat16, and not
// the dtype, whose name is computed in Python: interpreting Python may give up the lock (gil.h).
bool ParseDType(const py::dtype& dtype, DType* value) {
  const char order = dtype.byteorder();
  return (order == '=' || order == '|') &&
         Parse(dtype.attr("type").attr("__name__").cast<std::string>(), value) &&
         dtype.itemsize() == ElementBytes(*value);
}

DType CheckedDType(const char* name, const py::array& array) {
  DType dtype{};
  if (ParseDType(array.dtype(), &dtype)) return dtype;
  throw py::type_error(std::string(name) + ": expected dtype " + kDTypesText + ", got " +
                       Text(array.dtype()) + "; convert it with .astype('float32')");
}

// An array of the same dtype as lhs.
py::array CheckedLikeLhs(const char* name, const py::object& object, DType lhs_dtype) {
  py::array array = CheckedArray(name, object);
  DType dtype{};
  if (ParseDType(array.dtype(), &dtype) && dtype == lhs_dtype) return array;
  throw py::type_error(std::string(name) + ": expected dtype " + Name(lhs_dtype) +
                       ", that of lhs, got " + Text(array.dtype()) +
                       "; convert it with .astype(lhs.dtype)");
}

void CheckRank(const char* name, const py::array& array) {
  if (array.ndim() >= 2) return;
  throw py::value_error(std::string(name) + ": expected 2 or more dimensions, got shape " +
                        ShapeText(array));
}

void CheckOutput(const py::array& out, const std::vector<py::ssize_t>& shape) {
  if (static_cast<size_t>(out.ndim()) != shape.size() ||
      !std::equal(shape.begin(), shape.end(), out.shape())) {
    throw py::value_error("out: expected shape " + ShapeText(shape) + ", got " + ShapeText(out));
  }
  if (!out.writeable()) throw py::value_error("out: expected a writeable array");
}

void CheckAddend(const py::array& addend, const std::vector<py::ssize_t>& shape) {
  const py::ssize_t missing = static_cast<py::ssize_t>(shape.size()) - addend.ndim();
  bool fits = missing >= 0;
  for (py::ssize_t i = 0; fits && i < addend.ndim(); ++i) {
    fits = addend.shape(i) == 1 || addend.shape(i) == shape[static_cast<size_t>(missing + i)];
  }
  if (!fits) {
    throw py::value_error("addend of shape " + ShapeText(addend) +
                          " cannot be broadcast to the shape of the result, " + ShapeText(shape));
  }
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

// The stride of dimension `i` of the `rank` of the result, in elements; 0 where the array is
// broadcast.
int64_t Stride(const py::array& array, py::ssize_t i, py::ssize_t rank) {
  const py::ssize_t own = i - (rank - array.ndim());
  return own < 0 || array.shape(own) == 1 ? 0 : array.strides(own) / array.itemsize();
}

// Whether the address, and the strides that matter, are whole numbers of elements.
bool HasWholeElements(const py::array& array) {
  if (reinterpret_cast<uintptr_t>(array.data()) % static_cast<size_t>(array.itemsize()) != 0) {
    return false;
  }
  for (py::ssize_t i = 0; i < array.ndim(); ++i) {
    if (array.shape(i) > 1 && array.strides(i) % array.itemsize() != 0) return false;
  }
  return true;
}

// The strides of the matrices, in elements, as written in the array even if an extent is 1.
void FillOperand(const py::array& array, Operand* operand) {
  operand->row_stride = array.strides(array.ndim() - 2) / array.itemsize();
  operand->column_stride = array.strides(array.ndim() - 1) / array.itemsize();
}

char* CopyRowMajor(const char* from, const py::ssize_t* shape, const py::ssize_t* strides,
                   size_t rank, size_t element_bytes, char* to) {
  if (rank == 0) {
    std::memcpy(to, from, element_bytes);
    return to + element_bytes;
  }
  for (py::ssize_t i = 0; i < *shape; ++i) {
    to = CopyRowMajor(from + i * *strides, shape + 1, strides + 1, rank - 1, element_bytes, to);
  }
  return to;
}

// A copy in row-major order. Not NumPy's, which would give up the lock without the care of gil.h.
py::array RowMajorCopy(const py::array& array) {
  const std::vector<py::ssize_t> shape(array.shape(), array.shape() + array.ndim());
  const std::vector<py::ssize_t> strides(array.strides(), array.strides() + array.ndim());
  const auto element_bytes = static_cast<size_t>(array.itemsize());
  const auto* from = static_cast<const char*>(array.data());
  py::array copy(array.dtype(), shape);
  auto* to = static_cast<char*>(copy.mutable_data());
  WithoutGil(
      [&] { CopyRowMajor(from, shape.data(), strides.data(), shape.size(), element_bytes, to); });
  return copy;
}

// What is multiplied and where it goes. The addend may be missing.
struct Arrays {
  py::array lhs;
  py::array rhs;
  std::optional<py::array> addend;
  py::array out;
};

// A plan for the arrays, given a product with its dtype, extents and scale. Returns Refusal::kNone
// or the reason against.
Refusal MakePlan(const Arrays& arrays, Product product, Plan* plan) {
  const auto& [lhs, rhs, addend, out] = arrays;
  if (!HasWholeElements(lhs) || !HasWholeElements(rhs) || !HasWholeElements(out)) {
    return Refusal::kLayout;
  }
  FillOperand(lhs, &product.lhs);
  FillOperand(rhs, &product.rhs);
  FillOperand(out, &product.out);
  const py::ssize_t rank = out.ndim();
  product.has_addend = addend.has_value();
  if (product.has_addend) {
    if (!HasWholeElements(*addend)) return Refusal::kLayout;
    product.addend.row_stride = Stride(*addend, rank - 2, rank);
    product.addend.column_stride = Stride(*addend, rank - 1, rank);
  }
  for (py::ssize_t i = 0; i < rank - 2; ++i) {
    if (!product.AddBatchDim(out.shape(i), Stride(lhs, i, rank), Stride(rhs, i, rank),
                             Stride(out, i, rank), addend ? Stride(*addend, i, rank) : 0)) {
      return Refusal::kRank;
    }
  }
  return Plan::Make(product, plan);
}

// The same, after the addend was copied if its layout is what is in the way.
Refusal MakePlan(const Product& product, Arrays* arrays, Plan* plan) {
  Refusal refusal = MakePlan(*arrays, product, plan);
  if (refusal == Refusal::kLayout && arrays->addend.has_value()) {
    arrays->addend = RowMajorCopy(*arrays->addend);
    refusal = MakePlan(*arrays, product, plan);
  }
  if (refusal == Refusal::kNone) {
    plan->Bind(arrays->lhs.data(), arrays->rhs.data(),
               arrays->addend.has_value() ? arrays->addend->data() : nullptr,
               arrays->out.mutable_data());
  }
  return refusal;
}

const Kernel* ChooseKernel(const Lookup& lookup, const Problem& problem, int device,
                           bool generic_only, Refusal* refusal) {
  if (!generic_only) {
    const Kernel* exact = lookup.FindReady(problem, device, refusal);
    if (exact != nullptr) return exact;
  }
  // One that failed is the more telling reason than that there is no other kernel.
  Refusal generic_refusal = Refusal::kNone;
  const Kernel* generic = lookup.FindReady(problem.Generic(), device, &generic_refusal);
  if (generic == nullptr && *refusal != Refusal::kImage && *refusal != Refusal::kKernelFailed) {
    *refusal = generic_refusal;
  }
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
                    const py::object& rhs_object, const MatMulOptions& options) {
  if (options.threads < 1) {
    throw py::value_error("threads: expected 1 or more, got " + std::to_string(options.threads));
  }
  if (options.kernel != "auto" && options.kernel != "generic") {
    throw py::value_error("kernel: expected 'auto' or 'generic', got '" + options.kernel + "'");
  }
  const py::array lhs = CheckedArray("lhs", lhs_object);
  CheckRank("lhs", lhs);
  Product product;
  product.dtype = CheckedDType("lhs", lhs);
  product.scale = options.scale;
  const py::array rhs = CheckedLikeLhs("rhs", rhs_object, product.dtype);
  CheckRank("rhs", rhs);
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
  std::optional<py::array> addend;
  if (!options.addend.is_none()) {
    addend = CheckedLikeLhs("addend", options.addend, product.dtype);
    CheckAddend(*addend, out_shape);
  }
  MatMulResult result;
  if (options.out.is_none()) {
    result.out = py::array(lhs.dtype(), out_shape);
  } else {
    result.out = CheckedLikeLhs("out", options.out, product.dtype);
    CheckOutput(result.out, out_shape);
  }
  if (result.out.size() == 0) return result;

  Arrays arrays{lhs, rhs, std::move(addend), result.out};
  Plan plan;
  Refusal refusal = MakePlan(product, &arrays, &plan);
  std::string error;
  if (refusal == Refusal::kNone) {
    // Opening an image may take a while, and so may the product.
    WithoutGil([&] {
      const Lookup& lookup =
          options.gpu ? dispatcher.gpu(options.gpu->capability) : dispatcher.cpu();
      const int device = options.gpu ? options.gpu->stream.device : 0;
      result.kernel =
          ChooseKernel(lookup, plan.problem(), device, options.kernel == "generic", &refusal);
      if (result.kernel == nullptr) return;
      error = options.gpu ? LaunchOnGpu(plan, *result.kernel, options.gpu->stream).error
                          : RunOnThreads(plan, *result.kernel, options.threads);
    });
  }
  if (result.kernel == nullptr) {
    ThrowLookupError(std::string("no kernel serves ") + Name(product.dtype) + " lhs of shape " +
                     ShapeText(lhs) + " and rhs of shape " + ShapeText(rhs) + ": " +
                     RefusalName(refusal));
  }
  if (!error.empty()) throw std::runtime_error(error);
  return result;
}

}  // namespace tf_tvm_ops
