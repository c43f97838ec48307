// Two devices of type GPU for TensorFlow without a GPU, through its C interface for pluggable
// devices. Their memory is the host's, and whatever is enqueued is done at once. They claim the
// compute capability of $FAKE_GPU_CAPABILITY.
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>

#include "tensorflow/c/experimental/stream_executor/stream_executor.h"
#include "tensorflow/c/tf_status.h"

// What the interface leaves to the plugin; nothing is kept in them.
struct SP_Stream_st {};
struct SP_Event_st {};
struct SP_Timer_st {};

namespace {

constexpr int kDevices = 2;
constexpr size_t kAlignment = 64;

void Succeed(TF_Status* status) { TF_SetStatus(status, TF_OK, ""); }

void Allocate(const SP_Device*, uint64_t size, int64_t, SP_DeviceMemoryBase* memory) {
  const uint64_t rounded = (size + kAlignment - 1) / kAlignment * kAlignment;
  memory->struct_size = SP_DEVICE_MEMORY_BASE_STRUCT_SIZE;
  memory->opaque = std::aligned_alloc(kAlignment, rounded);
  memory->size = size;
}

void Deallocate(const SP_Device*, SP_DeviceMemoryBase* memory) {
  std::free(memory->opaque);
  memory->opaque = nullptr;
}

void FillExecutor(SP_StreamExecutor* e) {
  *e = {SP_STREAMEXECUTOR_STRUCT_SIZE};
  e->allocate = Allocate;
  e->deallocate = Deallocate;
  e->host_memory_allocate = [](const SP_Device*, uint64_t size) { return std::malloc(size); };
  e->host_memory_deallocate = [](const SP_Device*, void* memory) { std::free(memory); };
  e->get_allocator_stats = [](const SP_Device*, SP_AllocatorStats*) -> TF_Bool { return 0; };
  e->device_memory_usage = [](const SP_Device*, int64_t* free, int64_t* total) -> TF_Bool {
    *free = *total = int64_t{1} << 30;
    return 1;
  };
  e->create_stream = [](const SP_Device*, SP_Stream* stream, TF_Status* status) {
    *stream = new SP_Stream_st;
    Succeed(status);
  };
  e->destroy_stream = [](const SP_Device*, SP_Stream stream) { delete stream; };
  e->create_stream_dependency = [](const SP_Device*, SP_Stream, SP_Stream, TF_Status* status) {
    Succeed(status);
  };
  e->get_stream_status = [](const SP_Device*, SP_Stream, TF_Status* status) { Succeed(status); };
  e->create_event = [](const SP_Device*, SP_Event* event, TF_Status* status) {
    *event = new SP_Event_st;
    Succeed(status);
  };
  e->destroy_event = [](const SP_Device*, SP_Event event) { delete event; };
  e->get_event_status = [](const SP_Device*, SP_Event) { return SE_EVENT_COMPLETE; };
  e->record_event = [](const SP_Device*, SP_Stream, SP_Event, TF_Status* status) {
    Succeed(status);
  };
  e->wait_for_event = [](const SP_Device*, SP_Stream, SP_Event, TF_Status* status) {
    Succeed(status);
  };
  e->memcpy_dtoh = [](const SP_Device*, SP_Stream, void* to, const SP_DeviceMemoryBase* from,
                      uint64_t size, TF_Status* status) {
    std::memcpy(to, from->opaque, size);
    Succeed(status);
  };
  e->memcpy_htod = [](const SP_Device*, SP_Stream, SP_DeviceMemoryBase* to, const void* from,
                      uint64_t size, TF_Status* status) {
    std::memcpy(to->opaque, from, size);
    Succeed(status);
  };
  e->memcpy_dtod = [](const SP_Device*, SP_Stream, SP_DeviceMemoryBase* to,
                      const SP_DeviceMemoryBase* from, uint64_t size, TF_Status* status) {
    std::memcpy(to->opaque, from->opaque, size);
    Succeed(status);
  };
  e->sync_memcpy_dtoh = [](const SP_Device*, void* to, const SP_DeviceMemoryBase* from,
                           uint64_t size, TF_Status* status) {
    std::memcpy(to, from->opaque, size);
    Succeed(status);
  };
  e->sync_memcpy_htod = [](const SP_Device*, SP_DeviceMemoryBase* to, const void* from,
                           uint64_t size, TF_Status* status) {
    std::memcpy(to->opaque, from, size);
    Succeed(status);
  };
  e->sync_memcpy_dtod = [](const SP_Device*, SP_DeviceMemoryBase* to,
                           const SP_DeviceMemoryBase* from, uint64_t size, TF_Status* status) {
    std::memcpy(to->opaque, from->opaque, size);
    Succeed(status);
  };
  e->block_host_for_event = [](const SP_Device*, SP_Event, TF_Status* status) { Succeed(status); };
  e->block_host_until_done = [](const SP_Device*, SP_Stream, TF_Status* status) {
    Succeed(status);
  };
  e->synchronize_all_activity = [](const SP_Device*, TF_Status* status) { Succeed(status); };
  e->mem_zero = [](const SP_Device*, SP_Stream, SP_DeviceMemoryBase* to, uint64_t size,
                   TF_Status* status) {
    std::memset(to->opaque, 0, size);
    Succeed(status);
  };
  e->memset = [](const SP_Device*, SP_Stream, SP_DeviceMemoryBase* to, uint8_t value, uint64_t size,
                 TF_Status* status) {
    std::memset(to->opaque, value, size);
    Succeed(status);
  };
  e->memset32 = [](const SP_Device*, SP_Stream, SP_DeviceMemoryBase* to, uint32_t value,
                   uint64_t size, TF_Status* status) {
    for (uint64_t i = 0; i < size / 4; ++i) static_cast<uint32_t*>(to->opaque)[i] = value;
    Succeed(status);
  };
  e->host_callback = [](const SP_Device*, SP_Stream, SE_StatusCallbackFn callback,
                        void* argument) -> TF_Bool {
    TF_Status* status = TF_NewStatus();
    callback(argument, status);
    TF_DeleteStatus(status);
    return 1;
  };
}

// As TensorFlow describes its own GPUs.
const char* Description() {
  static const std::string text = [] {
    const char* capability = std::getenv("FAKE_GPU_CAPABILITY");
    return "0000:00:00.0" +
           (capability == nullptr ? "" : std::string(", compute capability: ") + capability);
  }();
  return text.c_str();
}

void FillPlatform(SP_PlatformFns* fns) {
  *fns = {SP_PLATFORM_FNS_STRUCT_SIZE};
  fns->get_device_count = [](const SP_Platform*, int* count, TF_Status* status) {
    *count = kDevices;
    Succeed(status);
  };
  fns->create_device = [](const SP_Platform*, SE_CreateDeviceParams* params, TF_Status* status) {
    params->device->struct_size = SP_DEVICE_STRUCT_SIZE;
    params->device->ordinal = params->ordinal;
    params->device->hardware_name = "fake";
    params->device->device_vendor = "nobody";
    params->device->pci_bus_id = Description();
    Succeed(status);
  };
  fns->destroy_device = [](const SP_Platform*, SP_Device*) {};
  fns->create_device_fns = [](const SP_Platform*, SE_CreateDeviceFnsParams* params,
                              TF_Status* status) {
    *params->device_fns = {SP_DEVICE_FNS_STRUCT_SIZE};
    params->device_fns->get_numa_node = [](const SP_Device*) -> int32_t { return 0; };
    params->device_fns->get_memory_bandwidth = [](const SP_Device*) -> int64_t { return -1; };
    params->device_fns->get_gflops = [](const SP_Device*) -> double { return -1; };
    Succeed(status);
  };
  fns->destroy_device_fns = [](const SP_Platform*, SP_DeviceFns*) {};
  fns->create_stream_executor = [](const SP_Platform*, SE_CreateStreamExecutorParams* params,
                                   TF_Status* status) {
    FillExecutor(params->stream_executor);
    Succeed(status);
  };
  fns->destroy_stream_executor = [](const SP_Platform*, SP_StreamExecutor*) {};
  fns->create_timer_fns = [](const SP_Platform*, SP_TimerFns* fns, TF_Status* status) {
    *fns = {SP_TIMER_FNS_STRUCT_SIZE};
    fns->nanoseconds = [](SP_Timer) -> uint64_t { return 0; };
    Succeed(status);
  };
  fns->destroy_timer_fns = [](const SP_Platform*, SP_TimerFns*) {};
}

}  // namespace

extern "C" void SE_InitPlugin(SE_PlatformRegistrationParams* params, TF_Status* status) {
  params->major_version = SE_MAJOR;
  params->minor_version = SE_MINOR;
  params->patch_version = SE_PATCH;
  params->platform->struct_size = SP_PLATFORM_STRUCT_SIZE;
  params->platform->name = "FAKE";
  params->platform->type = "GPU";
  params->platform->supports_unified_memory = 0;
  params->platform->use_bfc_allocator = 1;
  params->platform->force_memory_growth = 1;
  FillPlatform(params->platform_fns);
  params->destroy_platform = [](SP_Platform*) {};
  params->destroy_platform_fns = [](SP_PlatformFns*) {};
  Succeed(status);
}

extern "C" void TF_InitKernel() {}
