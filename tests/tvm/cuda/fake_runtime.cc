// The CUDA runtime library without a GPU: what TVM's CUDA runtime names, for fake_driver.cc.
#include <dlfcn.h>

#include <cstdint>
#include <cstdlib>

extern "C" {

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

}  // extern "C"
