// A CUDA driver and its runtime library without a GPU, for TVM's own CUDA runtime to call: kernels
// are those of the emulator's library that $FAKE_DRIVER_KERNELS names. Built twice, as libcuda and,
// with FAKE_RUNTIME, as libcudart.
#include <dlfcn.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>

extern "C" {

#ifdef FAKE_RUNTIME

int cudaGetDevice(int* device) {
  *device = 0;
  return 0;
}

#define SUCCEED(NAME) \
  int NAME() { return 0; }
SUCCEED(cudaDeviceGetAttribute)
SUCCEED(cudaEventCreate)
SUCCEED(cudaEventDestroy)
SUCCEED(cudaEventElapsedTime)
SUCCEED(cudaEventRecord)
SUCCEED(cudaEventSynchronize)
SUCCEED(cudaFree)
SUCCEED(cudaFreeHost)
SUCCEED(cudaGetDeviceCount)
SUCCEED(cudaGetDeviceProperties)
SUCCEED(cudaGetLastError)
SUCCEED(cudaGraphDestroy)
SUCCEED(cudaGraphExecDestroy)
SUCCEED(cudaGraphInstantiate)
SUCCEED(cudaGraphLaunch)
SUCCEED(cudaMalloc)
SUCCEED(cudaMallocHost)
SUCCEED(cudaMemGetInfo)
SUCCEED(cudaMemcpyAsync)
SUCCEED(cudaMemcpyPeerAsync)
SUCCEED(cudaPeekAtLastError)
SUCCEED(cudaSetDevice)
SUCCEED(cudaStreamBeginCapture)
SUCCEED(cudaStreamCreate)
SUCCEED(cudaStreamCreateWithFlags)
SUCCEED(cudaStreamDestroy)
SUCCEED(cudaStreamEndCapture)
SUCCEED(cudaStreamSynchronize)
SUCCEED(cudaStreamWaitEvent)

const char* cudaGetErrorName(int) { return "fake"; }
const char* cudaGetErrorString(int) { return "fake"; }

#else

// What a test asks for afterwards.
int fake_modules = 0;
int fake_launches = 0;
void* fake_stream = nullptr;

constexpr int kInvalidImage = 200;
constexpr int kNotFound = 500;
constexpr int kInvalidValue = 1;
constexpr int kLaunchFailed = 719;

// As in the driver's header.
struct LaunchConfig {
  unsigned grid[3];
  unsigned block[3];
  unsigned shared_bytes;
  void* stream;
  void* attributes;
  unsigned attribute_count;
};

int cuModuleLoadData(void** module, const void* image) {
  constexpr uint16_t kMachineCuda = 190;
  uint16_t machine;
  std::memcpy(&machine, static_cast<const char*>(image) + 18, sizeof machine);
  if (std::memcmp(image, "\177ELF", 4) != 0 || machine != kMachineCuda) return kInvalidImage;
  ++fake_modules;
  *module = const_cast<void*>(image);
  return 0;
}

int cuModuleGetFunction(void** function, void*, const char* name) {
  void* kernels = dlopen(std::getenv("FAKE_DRIVER_KERNELS"), RTLD_NOW | RTLD_LOCAL);
  if (kernels == nullptr) return kNotFound;
  *function = dlsym(kernels, (std::string("emulate_launch_") + name).c_str());
  return *function == nullptr ? kNotFound : 0;
}

int cuLaunchKernelEx(const LaunchConfig* config, void* function, void** arguments, void**) {
  const bool one_dimension =
      config->grid[1] * config->grid[2] * config->block[1] * config->block[2] == 1;
  if (!one_dimension || config->grid[0] < 1 || config->shared_bytes != 0) return kInvalidValue;
  ++fake_launches;
  fake_stream = config->stream;
  auto* launch = reinterpret_cast<int (*)(int64_t, int64_t, void* const*)>(function);
  return launch(config->grid[0], config->block[0], arguments) == 0 ? 0 : kLaunchFailed;
}

int cuModuleUnload(void*) { return 0; }
int cuFuncSetAttribute() { return 0; }
int cuDeviceGetName() { return 0; }
int cuTensorMapEncodeTiled() { return 0; }

int cuGetErrorName(int, const char** name) {
  *name = "fake";
  return 0;
}

int cuGetErrorString(int, const char** text) {
  *text = "fake";
  return 0;
}

#endif

}  // extern "C"
