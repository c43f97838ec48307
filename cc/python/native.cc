// The Python module tf_tvm_ops._native: the dispatcher without TensorFlow. Its signatures for type
// checkers are in tf_tvm_ops/_native.pyi.
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>
#include <pybind11/stl/filesystem.h>

#include <chrono>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cc/dispatch/cpu_features.h"
#include "cc/dispatch/cuda_runtime.h"
#include "cc/dispatch/cuda_targets.h"
#include "cc/dispatch/dispatcher.h"
#include "cc/dispatch/sha256.h"
#include "cc/python/gil.h"
#include "cc/python/matmul.h"

namespace tf_tvm_ops {
namespace {

namespace py = pybind11;

// Paths, and what comes from files, need not be UTF-8.
py::str Text(const std::string& text) {
  PyObject* object =
      PyUnicode_DecodeFSDefaultAndSize(text.data(), static_cast<py::ssize_t>(text.size()));
  if (object == nullptr) throw py::error_already_set();
  return py::reinterpret_steal<py::str>(object);
}

py::list Texts(const std::vector<std::string>& texts) {
  py::list list;
  for (const std::string& text : texts) list.append(Text(text));
  return list;
}

// A kernel as Python sees it. Kernels are never destroyed, so neither needs the other.
struct KernelInfo {
  const Kernel* kernel;

  std::optional<int64_t> Extent(int64_t extent) const {
    if (kernel->problem().is_generic()) return std::nullopt;
    return extent;
  }
};

std::optional<KernelInfo> Info(const Kernel* kernel) {
  if (kernel == nullptr) return std::nullopt;
  return KernelInfo{kernel};
}

template <typename Enum>
Enum Parsed(const char* argument, const std::string& name) {
  Enum value{};
  if (!Parse(name, &value)) {
    throw py::value_error(std::string(argument) + ": '" + name +
                          "' is not a value of Problem; see tf_tvm_ops.kernels.problem");
  }
  return value;
}

Problem MakeProblem(std::optional<int64_t> m, std::optional<int64_t> n, std::optional<int64_t> k,
                    const std::string& lhs, const std::string& rhs, const std::string& dtype) {
  if (m.has_value() != n.has_value() || n.has_value() != k.has_value()) {
    throw py::value_error("m, n and k: expected all integers, or all None for the generic kernel");
  }
  Problem problem;
  problem.dtype = Parsed<DType>("dtype", dtype);
  problem.lhs_contiguous = Parsed<LhsContiguous>("lhs", lhs);
  problem.rhs_contiguous = Parsed<RhsContiguous>("rhs", rhs);
  if (!m.has_value()) return problem.Generic();
  for (const auto& [name, extent] : {std::pair("m", *m), {"n", *n}, {"k", *k}}) {
    if (extent < 0) {
      throw py::value_error(std::string(name) + ": expected 0 or more, got " +
                            std::to_string(extent));
    }
  }
  problem.m = *m;
  problem.n = *n;
  problem.k = *k;
  return problem;
}

std::unique_ptr<Dispatcher> MakeDispatcher(const std::string& cpu_target_limit) {
  std::string known;
  for (const std::string& target : KnownCpuTargets()) {
    if (cpu_target_limit == target) return std::make_unique<Dispatcher>(cpu_target_limit);
    known += target + ", ";
  }
  if (cpu_target_limit.empty()) return std::make_unique<Dispatcher>();
  throw py::value_error("cpu_target_limit: expected " + known + "or '' for the best of this CPU, " +
                        "got '" + cpu_target_limit + "'");
}

PackInfo LoadPack(Dispatcher& dispatcher, const std::filesystem::path& path) {
  PackInfo info;
  std::string error;
  bool loaded = false;
  WithoutGil([&] { loaded = dispatcher.LoadPack(path.native(), &info, &error); });
  if (!loaded) throw py::value_error(error);
  return info;
}

// Nanoseconds a call of `work`, the mean of `iterations`.
template <typename Work>
double MeanNanoseconds(int64_t iterations, Work work) {
  const auto start = std::chrono::steady_clock::now();
  for (int64_t i = 0; i < iterations; ++i) work();
  const std::chrono::duration<double, std::nano> took = std::chrono::steady_clock::now() - start;
  return took.count() / static_cast<double>(iterations);
}

// What a lookup costs, and a call apart from the arithmetic.
std::pair<double, double> Benchmark(const Dispatcher& dispatcher, std::optional<int64_t> m,
                                    std::optional<int64_t> n, std::optional<int64_t> k,
                                    const std::string& lhs, const std::string& rhs,
                                    const std::string& dtype, int64_t iterations) {
  if (iterations < 1) {
    throw py::value_error("iterations: expected 1 or more, got " + std::to_string(iterations));
  }
  const Problem problem = MakeProblem(m, n, k, lhs, rhs, dtype);
  Refusal refusal = Refusal::kNone;
  const Kernel* kernel = dispatcher.cpu().FindReady(problem, 0, &refusal);
  if (kernel == nullptr) {
    ThrowLookupError("no kernel for " + problem.ToString() + ": " + RefusalName(refusal));
  }
  KernelArgs empty_range{};
  empty_range.heads = 1;
  std::string error = kernel->Call(empty_range);
  if (!error.empty()) throw std::runtime_error(error);
  const Kernel* volatile found = nullptr;  // keeps the loop from being optimised away
  const double find =
      MeanNanoseconds(iterations, [&] { found = dispatcher.cpu().Find(problem, 0); });
  const double call = MeanNanoseconds(iterations, [&] { error = kernel->Call(empty_range); });
  return {find, call};
}

void DefineKernelInfo(const py::module_& module) {
  py::class_<KernelInfo>(module, "KernelInfo", "A kernel of a loaded pack.")
      .def_property_readonly("symbol", [](const KernelInfo& i) { return i.kernel->symbol(); })
      .def_property_readonly("target", [](const KernelInfo& i) { return i.kernel->target(); })
      .def_property_readonly("pack", [](const KernelInfo& i) { return Text(i.kernel->pack()); })
      .def_property_readonly("config", [](const KernelInfo& i) { return Text(i.kernel->config()); })
      .def_property_readonly("problem",
                             [](const KernelInfo& i) { return i.kernel->problem().ToString(); })
      .def_property_readonly("m",
                             [](const KernelInfo& i) { return i.Extent(i.kernel->problem().m); })
      .def_property_readonly("n",
                             [](const KernelInfo& i) { return i.Extent(i.kernel->problem().n); })
      .def_property_readonly("k",
                             [](const KernelInfo& i) { return i.Extent(i.kernel->problem().k); })
      .def_property_readonly(
          "lhs", [](const KernelInfo& i) { return Name(i.kernel->problem().lhs_contiguous); })
      .def_property_readonly(
          "rhs", [](const KernelInfo& i) { return Name(i.kernel->problem().rhs_contiguous); })
      .def_property_readonly("dtype",
                             [](const KernelInfo& i) { return Name(i.kernel->problem().dtype); })
      .def_property_readonly("is_generic",
                             [](const KernelInfo& i) { return i.kernel->problem().is_generic(); })
      .def(
          "ready",
          [](const KernelInfo& i) {
            bool ready = false;
            WithoutGil([&] { ready = i.kernel->Ready(); });
            return ready;
          },
          "Whether its image is open, after opening it if need be. False if that failed, which was "
          "logged.")
      .def("__repr__", [](const KernelInfo& i) {
        return "KernelInfo(" + i.kernel->symbol() + ", " + i.kernel->target() + ")";
      });
}

void DefineGpu(const py::module_& module) {
  py::class_<Gpu>(module, "Gpu", "A GPU to compute on.")
      .def(py::init([](std::pair<int, int> capability, int device, uintptr_t stream) {
             return Gpu{
                 {capability.first, capability.second},
                 // An address that CUDA gave.
                 {device, reinterpret_cast<void*>(stream)}};  // NOLINT(performance-no-int-to-ptr)
           }),
           py::arg("capability"), py::arg("device") = 0, py::arg("stream") = 0,
           "Of this compute capability, such as (9, 0); CUDA's number of the device, and the "
           "address of its stream.");
}

void DefinePackInfo(const py::module_& module) {
  py::class_<PackInfo>(module, "PackInfo", "A loaded pack.")
      .def_property_readonly("path", [](const PackInfo& info) { return Text(info.path); })
      .def_readonly("kernels", &PackInfo::kernels,
                    "Number of problems it has a kernel for that is usable on this machine.")
      .def_property_readonly("targets", [](const PackInfo& info) { return Texts(info.targets); })
      .def_property_readonly(
          "ignored", [](const PackInfo& info) { return Texts(info.ignored); },
          "Images that are not used, and why.")
      .def("__repr__", [](const PackInfo& info) {
        return Text("PackInfo(" + info.path + ", kernels=" + std::to_string(info.kernels) + ")");
      });
}

void DefineDispatcher(py::module_& module) {
  using OptionalExtent = std::optional<int64_t>;
  py::class_<Dispatcher>(module, "Dispatcher", "Packs in, kernels by problem out.")
      .def(py::init(&MakeDispatcher), py::arg("cpu_target_limit") = "",
           "Without packs. `cpu_target_limit` is the best CPU target to use.")
      .def("load_pack", &LoadPack, py::arg("path"),
           "Puts the kernels of the pack in this folder before those already there. Raises "
           "ValueError, and changes nothing, if it cannot be used.")
      .def(
          "find",
          [](const Dispatcher& self, OptionalExtent m, OptionalExtent n, OptionalExtent k,
             const std::string& lhs, const std::string& rhs, const std::string& dtype,
             const std::optional<Gpu>& gpu) {
            const Lookup& lookup = gpu ? self.gpu(gpu->capability) : self.cpu();
            const int device = gpu ? gpu->stream.device : 0;
            return Info(lookup.Find(MakeProblem(m, n, k, lhs, rhs, dtype), device));
          },
          py::arg("m"), py::arg("n"), py::arg("k"), py::arg("lhs") = "k", py::arg("rhs") = "n",
          py::arg("dtype") = "float32", py::arg("gpu") = py::none(),
          "The kernel for exactly this problem, or None, of this CPU or of the GPU. With m, n and "
          "k "
          "None, the generic one.")
      .def("packs", &Dispatcher::packs, "The packs loaded, the preferred first.")
      .def(
          "matmul",
          [](const Dispatcher& self, const py::object& lhs, const py::object& rhs, int threads,
             const std::string& kernel, const py::object& out, const py::object& addend,
             double scale, const std::optional<Gpu>& gpu) {
            MatMulResult result =
                MatMul(self, lhs, rhs, {addend, scale, out, threads, kernel, gpu});
            return std::pair(std::move(result.out), Info(result.kernel));
          },
          py::arg("lhs"), py::arg("rhs"), py::arg("threads") = 1, py::arg("kernel") = "auto",
          py::arg("out") = py::none(), py::arg("addend") = py::none(), py::arg("scale") = 1.0,
          py::arg("gpu") = py::none(),
          "scale * numpy.matmul(lhs, rhs) + addend, of float32, float16, bfloat16 (of ml_dtypes) "
          "or "
          "float64 arrays of any strides; lhs and rhs have two or more dimensions, and the addend "
          "is "
          "broadcast to the result. The result is put into `out`, which must overlap nothing, or "
          "into a new array. Returns it and the kernel that made it, which is None for a result "
          "without elements. With `gpu` it is enqueued there: the GPU must reach the memory of all "
          "arrays, and nothing waits for it. "
          "Raises TypeError or ValueError if the operands do not fit, and LookupError naming the "
          "refusal if no kernel does.")
      .def("benchmark", &Benchmark, py::arg("m"), py::arg("n"), py::arg("k"), py::arg("lhs") = "k",
           py::arg("rhs") = "n", py::arg("dtype") = "float32", py::arg("iterations") = 1'000'000,
           "Nanoseconds of a lookup, and of a call of the kernel with no matrix to compute.");
}

std::string HexSha256(const py::bytes& data) {
  const std::string_view bytes = data;
  Sha256 hash;
  hash.Update(bytes.data(), bytes.size());
  return hash.HexDigest();
}

}  // namespace

PYBIND11_MODULE(_native, module) {
  module.doc() = "The dispatcher of tf_tvm_ops, without TensorFlow.";
  // pybind11 binds NumPy on first use and gives up the interpreter lock meanwhile; a thread that
  // does so while the interpreter shuts down would end the process (see gil.h).
  py::dtype::of<float>();
  DefineKernelInfo(module);
  DefineGpu(module);
  DefinePackInfo(module);
  DefineDispatcher(module);
  module.def("global_dispatcher", &Dispatcher::Global, py::return_value_policy::reference,
             "The one that the ops use, with the packs of the environment and the default pack.");
  module.def("supported_cpu_targets", &SupportedCpuTargets,
             "CPU targets this machine can run, best first.");
  module.def(
      "cuda_targets",
      [](std::pair<int, int> capability) {
        return CudaTargetsFor({capability.first, capability.second});
      },
      py::arg("capability"), "Targets that a GPU of this compute capability can run, best first.");
  module.def("has_cuda_driver", &HasCudaDriver, "Whether NVIDIA's driver is installed.");
  module.def("cuda_problem", &CudaRuntimeProblem,
             "Why kernels for GPUs cannot be used, or ''. Opens the libraries that they need.");
  module.def("sha256", &HexSha256, py::arg("data"), "The SHA-256 of bytes, in hex.");
}

}  // namespace tf_tvm_ops
