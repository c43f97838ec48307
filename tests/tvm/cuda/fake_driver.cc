// A CUDA driver without a GPU, for TVM's own CUDA runtime and for ours to call. There are two GPUs:
// their kernels are those of the emulator's library that $FAKE_DRIVER_KERNELS names, their memory
// is that of the process, and everything is done at once.
//
// $FAKE_DRIVER_FAULTS makes kernels go wrong: "skip:NAME" runs nothing, "stale:NAME" nothing of a
// graph, "illegal:NAME" makes that and every later call fail, "abort:NAME" ends the process,
// "hang:NAME" does not come back, "refuse:NAME" is not launched. $FAKE_DRIVER_REFUSES_MODULES has
// the numbers of the GPUs that no module can be loaded onto, such as "01".
#include <dlfcn.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

constexpr int kInvalidValue = 1;
constexpr int kNoDevice = 100;
constexpr int kInvalidDevice = 101;
constexpr int kInvalidImage = 200;
constexpr int kInvalidContext = 201;
constexpr int kNotFound = 500;
constexpr int kIllegalAddress = 700;
constexpr int kOutOfResources = 701;
constexpr int kLaunchFailed = 719;
constexpr int kCaptureUnsupported = 900;

constexpr size_t kMemoryBytes = size_t{1} << 30;
constexpr int kCacheBytes = 1 << 16;

// As in the driver's header.
struct LaunchConfig {
  unsigned grid[3];
  unsigned block[3];
  unsigned shared_bytes;
  void* stream;
  void* attributes;
  unsigned attribute_count;
};

struct Function {
  int (*launch)(int64_t blocks, int64_t threads, void* const* arguments);
  int parameters;
  std::string fault;
};

struct Launch {
  Function* function;
  int64_t blocks, threads;
  std::vector<uint64_t> arguments;
};

struct Graph {
  std::vector<Launch> launches;
};

struct Stream {
  Graph* capture = nullptr;
};

struct Event {
  std::chrono::steady_clock::time_point passed;
};

std::map<uintptr_t, size_t> allocations;
std::map<std::string, Function> functions;
std::set<void*> streams;
std::mutex mutex;  // of the tables above, and of the emulator, which is one for all threads
int sticky_error = 0;

constexpr int kDevices = 2;
// Contexts are numbers of devices plus one.
thread_local void* context_of_thread = nullptr;
int DeviceOfThread() { return static_cast<int>(reinterpret_cast<intptr_t>(context_of_thread)) - 1; }

extern "C" {

// What a test asks for afterwards.
int fake_modules = 0;
int fake_ptx_modules = 0;
int fake_launches = 0;
int fake_device = -1;
void* fake_stream = nullptr;

}  // extern "C"

// The fault that $FAKE_DRIVER_FAULTS has for a kernel, "" if none.
std::string FaultOf(const std::string& name) {
  const char* text = std::getenv("FAKE_DRIVER_FAULTS");
  std::string rest = text == nullptr ? "" : text;
  while (!rest.empty()) {
    const std::string word = rest.substr(0, rest.find(','));
    rest.erase(0, word.size() + 1);
    const size_t colon = word.find(':');
    if (word.substr(colon + 1) == name) return word.substr(0, colon);
  }
  return "";
}

bool RefusesModules() {
  const char* devices = std::getenv("FAKE_DRIVER_REFUSES_MODULES");
  const char device = static_cast<char>('0' + DeviceOfThread());
  return devices != nullptr && std::strchr(devices, device) != nullptr;
}

int Run(const Launch& launch) {
  const std::string& fault = launch.function->fault;
  if (fault == "refuse") return kOutOfResources;
  ++fake_launches;
  if (fault == "skip") return 0;
  if (fault == "abort") std::abort();
  while (fault == "hang") pause();
  if (fault == "illegal") {
    // As a GPU does: the launch succeeds, everything after it fails.
    sticky_error = kIllegalAddress;
    return 0;
  }
  std::vector<const void*> arguments;
  for (const uint64_t& argument : launch.arguments) arguments.push_back(&argument);
  auto* pointers = const_cast<void* const*>(arguments.data());
  return launch.function->launch(launch.blocks, launch.threads, pointers) == 0 ? 0 : kLaunchFailed;
}

// Whether that many bytes lie inside one allocation.
bool Inside(uintptr_t address, size_t bytes) {
  auto next = allocations.upper_bound(address);
  if (next == allocations.begin()) return false;
  const auto& [begin, size] = *--next;
  return address + bytes <= begin + size;
}

extern "C" {

int cuModuleLoadData(void** module, const void* image) {
  constexpr uint16_t kMachineCuda = 190;
  uint16_t machine;
  std::memcpy(&machine, static_cast<const char*>(image) + 18, sizeof machine);
  const bool ptx = std::memcmp(image, "//", 2) == 0;
  const bool cubin = std::memcmp(image, "\177ELF", 4) == 0 && machine == kMachineCuda;
  if (sticky_error != 0) return sticky_error;
  if (RefusesModules() || (!ptx && !cubin)) return kInvalidImage;
  const std::lock_guard<std::mutex> lock(mutex);
  ++fake_modules;
  if (ptx) ++fake_ptx_modules;
  *module = const_cast<void*>(image);
  return 0;
}

int cuModuleGetFunction(void** function, void*, const char* name) {
  void* kernels = dlopen(std::getenv("FAKE_DRIVER_KERNELS"), RTLD_NOW | RTLD_LOCAL);
  if (kernels == nullptr) return kNotFound;
  void* launch = dlsym(kernels, (std::string("emulate_launch_") + name).c_str());
  void* parameters = dlsym(kernels, (std::string("emulate_parameters_") + name).c_str());
  if (launch == nullptr || parameters == nullptr) return kNotFound;
  const std::lock_guard<std::mutex> lock(mutex);
  Function& found = functions[name];
  found.launch = reinterpret_cast<decltype(found.launch)>(launch);
  found.parameters = reinterpret_cast<int (*)()>(parameters)();
  found.fault = FaultOf(name);
  *function = &found;
  return 0;
}

int cuLaunchKernelEx(const LaunchConfig* config, void* function, void** arguments, void**) {
  if (sticky_error != 0) return sticky_error;
  const bool one_dimension =
      config->grid[1] * config->grid[2] * config->block[1] * config->block[2] == 1;
  if (!one_dimension || config->grid[0] < 1 || config->shared_bytes != 0) return kInvalidValue;
  if (context_of_thread == nullptr) return kInvalidContext;
  const std::lock_guard<std::mutex> lock(mutex);
  fake_stream = config->stream;
  fake_device = DeviceOfThread();
  auto* kernel = static_cast<Function*>(function);
  Launch launch{kernel, config->grid[0], config->block[0], {}};
  // No parameter is larger, and the caller keeps each in a slot of this size.
  for (int i = 0; i < kernel->parameters; ++i) {
    launch.arguments.emplace_back();
    std::memcpy(&launch.arguments.back(), arguments[i], sizeof(uint64_t));
  }
  // A stream may be another library's number, too.
  const bool ours = streams.count(config->stream) != 0;
  Graph* capture = ours ? static_cast<Stream*>(config->stream)->capture : nullptr;
  if (capture == nullptr) return Run(launch);
  capture->launches.push_back(std::move(launch));
  return 0;
}

int cuModuleUnload(void*) { return 0; }
int cuFuncSetAttribute() { return 0; }
int cuTensorMapEncodeTiled() { return 0; }

int cuGetErrorName(int error, const char** name) {
  static const std::map<int, const char*> names{
      {kInvalidImage, "CUDA_ERROR_INVALID_IMAGE"},
      {kIllegalAddress, "CUDA_ERROR_ILLEGAL_ADDRESS"},
      {kOutOfResources, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES"}};
  const auto found = names.find(error);
  *name = found == names.end() ? "fake" : found->second;
  return 0;
}

int cuGetErrorString(int, const char** text) {
  *text = "fake";
  return 0;
}

int cuInit(unsigned) { return std::getenv("FAKE_DRIVER_NO_DEVICE") == nullptr ? 0 : kNoDevice; }

int cuDriverGetVersion(int* version) {
  *version = 13000;
  return 0;
}

int cuDeviceGetCount(int* count) {
  *count = kDevices;
  return 0;
}

int cuDeviceGet(int* device, int ordinal) {
  *device = ordinal;
  return ordinal >= 0 && ordinal < kDevices ? 0 : kInvalidDevice;
}

int cuDeviceGetName(char* name, int size, int) {
  std::strncpy(name, "Emulated GPU", size);
  return 0;
}

int cuDeviceTotalMem_v2(size_t* bytes, int) {
  *bytes = kMemoryBytes;
  return 0;
}

int cuDeviceGetAttribute(int* value, int attribute, int) {
  const char* text = std::getenv("FAKE_DRIVER_CAPABILITY");
  const int capability = text == nullptr ? 90 : std::atoi(text);
  switch (attribute) {
    case 16:  // multiprocessors
      *value = 4;
      return 0;
    case 38:  // bytes of the second cache
      *value = kCacheBytes;
      return 0;
    case 75:
      *value = capability / 10;
      return 0;
    case 76:
      *value = capability % 10;
      return 0;
    default:
      return kInvalidValue;
  }
}

int cuDevicePrimaryCtxRetain(void** context, int device) {
  *context = reinterpret_cast<void*>(static_cast<intptr_t>(device) + 1);
  return 0;
}

int cuDevicePrimaryCtxRelease_v2(int) { return 0; }

int cuCtxSetCurrent(void* context) {
  context_of_thread = context;
  return 0;
}

int cuCtxGetCurrent(void** context) {
  *context = context_of_thread;
  return 0;
}

int cuCtxSynchronize() { return context_of_thread != nullptr ? sticky_error : kInvalidContext; }

int cuMemAlloc_v2(uint64_t* address, size_t bytes) {
  if (context_of_thread == nullptr) return kInvalidContext;
  if (bytes == 0) return kInvalidValue;
  void* memory = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
  *address = reinterpret_cast<uintptr_t>(memory);
  allocations[*address] = bytes;
  return sticky_error;
}

int cuMemFree_v2(uint64_t address) {
  if (allocations.erase(address) == 0) return kInvalidValue;
  std::free(reinterpret_cast<void*>(address));
  return sticky_error;
}

int cuMemcpyHtoD_v2(uint64_t target, const void* source, size_t bytes) {
  if (!Inside(target, bytes)) return kInvalidValue;
  std::memcpy(reinterpret_cast<void*>(target), source, bytes);
  return sticky_error;
}

int cuMemcpyDtoH_v2(void* target, uint64_t source, size_t bytes) {
  if (!Inside(source, bytes)) return kInvalidValue;
  std::memcpy(target, reinterpret_cast<void*>(source), bytes);
  return sticky_error;
}

int cuMemcpyDtoD_v2(uint64_t target, uint64_t source, size_t bytes) {
  if (!Inside(target, bytes) || !Inside(source, bytes)) return kInvalidValue;
  std::memmove(reinterpret_cast<void*>(target), reinterpret_cast<void*>(source), bytes);
  return sticky_error;
}

int cuMemsetD8_v2(uint64_t target, unsigned char byte, size_t bytes) {
  if (!Inside(target, bytes)) return kInvalidValue;
  std::memset(reinterpret_cast<void*>(target), byte, bytes);
  return sticky_error;
}

int cuStreamCreate(void** stream, unsigned) {
  *stream = new Stream;
  streams.insert(*stream);
  return sticky_error;
}

int cuStreamDestroy_v2(void* stream) {
  if (streams.erase(stream) == 0) return kInvalidValue;
  delete static_cast<Stream*>(stream);
  return sticky_error;
}

int cuStreamQuery(void*) { return sticky_error; }

int cuStreamSynchronize(void* stream) {
  const bool capturing = static_cast<Stream*>(stream)->capture != nullptr;
  return capturing ? kCaptureUnsupported : sticky_error;
}

int cuStreamBeginCapture_v2(void* stream, int) {
  static_cast<Stream*>(stream)->capture = new Graph;
  return sticky_error;
}

int cuStreamEndCapture(void* stream, void** graph) {
  *graph = std::exchange(static_cast<Stream*>(stream)->capture, nullptr);
  return *graph == nullptr ? kInvalidValue : sticky_error;
}

int cuGraphInstantiateWithFlags(void** executable, void* graph, unsigned long long) {
  *executable = new Graph(*static_cast<Graph*>(graph));
  return sticky_error;
}

int cuGraphLaunch(void* executable, void*) {
  if (sticky_error != 0) return sticky_error;
  const std::lock_guard<std::mutex> lock(mutex);
  for (const Launch& launch : static_cast<Graph*>(executable)->launches) {
    if (launch.function->fault == "stale") continue;
    if (int error = Run(launch)) return error;
  }
  return 0;
}

int cuGraphExecDestroy(void* executable) {
  delete static_cast<Graph*>(executable);
  return sticky_error;
}

int cuGraphDestroy(void* graph) {
  delete static_cast<Graph*>(graph);
  return sticky_error;
}

int cuEventCreate(void** event, unsigned) {
  *event = new Event;
  return sticky_error;
}

int cuEventDestroy_v2(void* event) {
  delete static_cast<Event*>(event);
  return sticky_error;
}

int cuEventRecord(void* event, void*) {
  static_cast<Event*>(event)->passed = std::chrono::steady_clock::now();
  return sticky_error;
}

int cuEventSynchronize(void*) { return sticky_error; }

int cuEventElapsedTime(float* milliseconds, void* begin, void* end) {
  *milliseconds = std::chrono::duration<float, std::milli>(static_cast<Event*>(end)->passed -
                                                           static_cast<Event*>(begin)->passed)
                      .count();
  return sticky_error;
}

}  // extern "C"
