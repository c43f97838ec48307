#include "cc/dispatch/cuda_runtime.h"

#include <dlfcn.h>
#include <tvm/ffi/c_api.h>
#include <unistd.h>

#include <exception>
#include <vector>

#include "cc/dispatch/config.h"
#include "cc/dispatch/file.h"
#include "cc/dispatch/log.h"

namespace tf_tvm_ops {
namespace {

constexpr char kDriver[] = "libcuda.so.1";

// A library, and where to get it.
struct Library {
  const char* name;
  const char* advice;
};

// In the order in which they are opened: each needs those before it.
constexpr Library kCudart{"libcudart.so.13",
                          "it is the CUDA 13 runtime: pip install nvidia-cuda-runtime"};
constexpr Library kTvmRuntime{"libtvm_runtime.so", "pip install apache-tvm"};
constexpr Library kTvmCuda{"libtvm_runtime_cuda.so", "pip install apache-tvm"};

// The folder of the library that holds a function, by its real path.
std::string FolderOf(const void* function) {
  Dl_info info{};
  std::string path;
  std::string error;
  if (dladdr(function, &info) == 0 || info.dli_fname == nullptr ||
      !RealPath(info.dli_fname, &path, &error)) {
    return {};
  }
  return path.substr(0, path.rfind('/'));
}

// Where libraries may lie besides the loader's own path, the first preferred.
std::vector<std::string> Folders() {
  std::vector<std::string> folders = config::CudaRuntime();
  folders.push_back(FolderOf(reinterpret_cast<const void*>(&HasCudaDriver)));
  // libtvm_ffi lies in a Python package, and the others in packages beside it.
  const std::string ffi = FolderOf(reinterpret_cast<const void*>(&TVMFFIErrorMoveFromRaised));
  for (const char* package : {"/../../tvm/lib", "/../../nvidia/cu13/lib"}) {
    folders.push_back(ffi + package);
  }
  return folders;
}

// Null with the reason in *error. The symbols are made public, since the libraries opened later,
// and images, name functions without naming the library.
void* Open(const char* name, const std::vector<std::string>& folders, std::string* error) {
  constexpr int kMode = RTLD_NOW | RTLD_GLOBAL;
  // The process may have it from elsewhere, as with `import tvm`; two of them would not do.
  if (void* present = dlopen(name, kMode | RTLD_NOLOAD)) return present;
  for (const std::string& folder : folders) {
    const std::string path = folder + "/" + name;
    if (access(path.c_str(), R_OK) != 0) continue;
    void* library = dlopen(path.c_str(), kMode);
    if (library == nullptr) *error = dlerror();
    return library;
  }
  void* library = dlopen(name, kMode);
  if (library == nullptr) *error = dlerror();
  return library;
}

void* Open(const Library& library, const std::vector<std::string>& folders, std::string* error) {
  void* handle = Open(library.name, folders, error);
  if (handle == nullptr) *error += " (" + std::string(library.advice) + ")";
  return handle;
}

void* Driver(std::string* error) {
  void* driver = Open(kDriver, {}, error);
  if (driver == nullptr) *error += " (it comes with NVIDIA's driver)";
  return driver;
}

template <typename Function>
void Find(void* library, const char* name, Function* function, std::string* error) {
  *function = reinterpret_cast<Function>(dlsym(library, name));
  if (*function == nullptr && error->empty()) *error = std::string("there is no ") + name;
}

// Empty, or what does not work.
std::string Load(CudaApi* api) {
  std::string error;
  const std::vector<std::string> folders = Folders();
  void* driver = Driver(&error);
  if (driver == nullptr) return error;
  void* runtime = Open(kCudart, folders, &error);
  if (runtime == nullptr) return error;
  Find(driver, "cuCtxGetCurrent", &api->context_of_thread, &error);
  Find(driver, "cuCtxSetCurrent", &api->set_context_of_thread, &error);
  Find(driver, "cuStreamQuery", &api->query_stream, &error);
  Find(runtime, "cudaGetDeviceCount", &api->device_count, &error);
  Find(runtime, "cudaGetDevice", &api->device_of_thread, &error);
  Find(runtime, "cudaSetDevice", &api->set_device_of_thread, &error);
  Find(runtime, "cudaGetErrorString", &api->error_text, &error);
  if (!error.empty()) return error;
  // The first call that fails if the driver is too old for the runtime library.
  int count = 0;
  const int failure = api->device_count(&count);
  if (failure != 0) return std::string("CUDA cannot be used: ") + api->error_text(failure);
  if (count == 0) return "CUDA finds no GPU";
  // Before the images: the first has what their functions call, the second reads their CUDA code.
  if (Open(kTvmRuntime, folders, &error) == nullptr) return error;
  if (Open(kTvmCuda, folders, &error) == nullptr) return error;
  return {};
}

struct Runtime {
  CudaApi api;
  std::string problem;

  Runtime() {
    try {
      problem = Load(&api);
    } catch (const std::exception& e) {
      problem = e.what();
    }
    if (problem.empty()) return;
    Log(Severity::kWarning,
        "kernels for GPUs are not used, TensorFlow's own serve instead: " + problem +
            ". Besides "
            "NVIDIA's driver they need libcudart.so.13, libtvm_runtime.so and "
            "libtvm_runtime_cuda.so; " +
            config::CudaRuntimeVariable() + " names folders to look in");
  }
};

// Never destroyed: kernels may be launched while the process ends.
const Runtime& Global() {
  static const auto* const runtime = new Runtime;
  return *runtime;
}

}  // namespace

bool HasCudaDriver() {
  static const bool found = [] {
    std::string error;
    return Driver(&error) != nullptr;
  }();
  return found;
}

const CudaApi* OpenCudaRuntime() {
  const Runtime& runtime = Global();
  return runtime.problem.empty() ? &runtime.api : nullptr;
}

std::string CudaRuntimeProblem() { return Global().problem; }

}  // namespace tf_tvm_ops
