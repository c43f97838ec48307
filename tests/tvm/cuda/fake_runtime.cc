// The CUDA runtime library without a GPU: what TVM's CUDA runtime names, for fake_driver.cc.
extern "C" {

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

}  // extern "C"
