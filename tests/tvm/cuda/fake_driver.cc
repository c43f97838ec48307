// A CUDA driver and its runtime library without a GPU, for TVM's own CUDA runtime to call: kernels
// are those of the emulator's library that $FAKE_DRIVER_KERNELS names. There are two GPUs, whose
// memory is the host's. Built twice, as libcuda and, with FAKE_RUNTIME, as libcudart.
#include <dlfcn.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string>

extern "C" {

#ifdef FAKE_RUNTIME

// Of the driver, which is loaded before.
int FakeContext(void** context) {
  static const auto get = reinterpret_cast<int (*)(void**)>(
      dlsym(dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD), "cuCtxGetCurrent"));
  return get(context);
}
int FakeSetContext(void* context) {
  static const auto set = reinterpret_cast<int (*)(void*)>(
      dlsym(dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD), "cuCtxSetCurrent"));
  return set(context);
}

// Contexts are numbers of devices plus one. The device of a thread is that of its context, and else
// the one that was last set.
thread_local int last_device = 0;

int cudaGetDevice(int* device) {
  void* context = nullptr;
  FakeContext(&context);
  *device =
      context == nullptr ? last_device : static_cast<int>(reinterpret_cast<intptr_t>(context)) - 1;
  return 0;
}

int cudaSetDevice(int device) {
  constexpr int kInvalidDevice = 101;
  if (device < 0 || device > 1) return kInvalidDevice;
  last_device = device;
  return FakeSetContext(reinterpret_cast<void*>(static_cast<intptr_t>(device) + 1));
}

int cudaGetDeviceCount(int* count) {
  const char* failure = std::getenv("FAKE_DRIVER_FAILURE");
  if (failure != nullptr) return std::atoi(failure);
  *count = 2;
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
SUCCEED(cudaStreamBeginCapture)
SUCCEED(cudaStreamCreate)
SUCCEED(cudaStreamCreateWithFlags)
SUCCEED(cudaStreamDestroy)
SUCCEED(cudaStreamEndCapture)
SUCCEED(cudaStreamSynchronize)
SUCCEED(cudaStreamWaitEvent)

const char* cudaGetErrorName(int) { return "fake"; }
const char* cudaGetErrorString(int) { return "the fake failed"; }

#else

// What a test asks for afterwards.
int fake_modules = 0;
int fake_ptx_modules = 0;
int fake_launches = 0;
int fake_device = -1;
void* fake_stream = nullptr;

thread_local void* context_of_thread = nullptr;

int cuCtxGetCurrent(void** context) {
  *context = context_of_thread;
  return 0;
}

int cuCtxSetCurrent(void* context) {
  context_of_thread = context;
  return 0;
}

constexpr int kInvalidImage = 200;
constexpr int kNotFound = 500;
constexpr int kInvalidValue = 1;
constexpr int kInvalidContext = 201;
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
  const char* refused = std::getenv("FAKE_DRIVER_REFUSES_MODULES");
  const bool ptx = std::memcmp(image, "//", 2) == 0;
  const bool cubin = std::memcmp(image, "\177ELF", 4) == 0 && machine == kMachineCuda;
  if (refused != nullptr || (!ptx && !cubin)) return kInvalidImage;
  __atomic_add_fetch(&fake_modules, 1, __ATOMIC_RELAXED);
  if (ptx) fake_ptx_modules = 1;
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
  if (context_of_thread == nullptr) return kInvalidContext;
  __atomic_add_fetch(&fake_launches, 1, __ATOMIC_RELAXED);
  // The emulator is one GPU, for all threads.
  static std::mutex mutex;
  const std::lock_guard<std::mutex> lock(mutex);
  fake_stream = config->stream;
  fake_device = static_cast<int>(reinterpret_cast<intptr_t>(context_of_thread)) - 1;
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
