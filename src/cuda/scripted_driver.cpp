// A library with the driver's functions and no device behind them, for tests: it counts what is alive and fails on the
// call that it is told to. Handles are numbers; events tick once a record.
#include <cstring>
#include <map>
#include <string>

#include "cuda/driver_api.h"

namespace {

using namespace moetune::cuda;

struct Script {
  int version = 13000;
  int devices = 1;
  int fail_at = 0;  // the fail_at-th call from now on fails; 0: none
  int fail_code = 0;
  int calls = 0;
  int live = 0;
  int capturing = 0;
  std::string failed_call;
  std::map<cu::Event, int> ticks;
  int clock = 0;
  std::uintptr_t next_handle = 0x1000;
};
Script script;

/// Counts the call; the code that it is to fail with, or 0.
cu::Code step(const char* name) {
  if (++script.calls != script.fail_at) return 0;
  script.failed_call = name;
  return script.fail_code;
}

template <class Handle>
cu::Code create(const char* name, Handle* handle) {
  if (const auto code = step(name); code != 0) return code;
  ++script.live;
  script.next_handle += 0x100;
  if constexpr (std::is_pointer_v<Handle>)
    *handle = reinterpret_cast<Handle>(script.next_handle);
  else
    *handle = script.next_handle;
  return 0;
}

// Destroyed is destroyed, also when the call reports a failure.
cu::Code destroy(const char* name) {
  --script.live;
  return step(name);
}

}  // namespace

extern "C" {
#define EXPORT __attribute__((visibility("default")))

EXPORT void scripted_reset(int version, int devices, int fail_at, int fail_code) {
  script = Script{};
  script.version = version;
  script.devices = devices;
  script.fail_at = fail_at;
  script.fail_code = fail_code;
}
EXPORT int scripted_live() { return script.live; }
EXPORT int scripted_calls() { return script.calls; }
EXPORT int scripted_capturing() { return script.capturing; }
EXPORT const char* scripted_failed_call() { return script.failed_call.c_str(); }

EXPORT cu::Code cuInit(unsigned) { return script.devices > 0 ? step("cuInit") : cu::kNoDevice; }
EXPORT cu::Code cuDriverGetVersion(int* version) {
  *version = script.version;
  return 0;
}
EXPORT cu::Code cuGetErrorName(cu::Code code, const char** name) {
  *name = code == cu::kIllegalAddress ? "CUDA_ERROR_ILLEGAL_ADDRESS"
          : code == cu::kOutOfMemory  ? "CUDA_ERROR_OUT_OF_MEMORY"
          : code == cu::kNoDevice     ? "CUDA_ERROR_NO_DEVICE"
                                      : nullptr;
  return *name != nullptr ? 0 : cu::kInvalidValue;
}
EXPORT cu::Code cuGetErrorString(cu::Code code, const char** text) {
  *text = code == cu::kIllegalAddress ? "an illegal memory access was encountered"
          : code == cu::kOutOfMemory  ? "out of memory"
                                      : nullptr;
  return *text != nullptr ? 0 : cu::kInvalidValue;
}

EXPORT cu::Code cuDeviceGetCount(int* count) {
  *count = script.devices;
  return step("cuDeviceGetCount");
}
EXPORT cu::Code cuDeviceGet(cu::Device* device, int ordinal) {
  *device = ordinal;
  return step("cuDeviceGet");
}
EXPORT cu::Code cuDeviceGetName(char* name, int length, cu::Device) {
  std::strncpy(name, "Scripted GPU", static_cast<std::size_t>(length));
  return step("cuDeviceGetName");
}
EXPORT cu::Code cuDeviceGetUuid_v2(cu::Uuid* uuid, cu::Device device) {
  for (std::size_t i = 0; i < 16; ++i)
    uuid->bytes[i] = static_cast<unsigned char>(0xa0U + i + static_cast<unsigned>(device));
  return step("cuDeviceGetUuid");
}
// Attribute n has the value n, so that a test sees which was asked; the compute capability is 9.0.
EXPORT cu::Code cuDeviceGetAttribute(int* value, int attribute, cu::Device) {
  *value = attribute == static_cast<int>(cu::DeviceAttribute::compute_major)   ? 9
           : attribute == static_cast<int>(cu::DeviceAttribute::compute_minor) ? 0
                                                                               : attribute;
  return step("cuDeviceGetAttribute");
}
EXPORT cu::Code cuDeviceTotalMem_v2(std::size_t* bytes, cu::Device) {
  *bytes = std::size_t{1} << 37;
  return step("cuDeviceTotalMem");
}
EXPORT cu::Code cuDeviceGetPCIBusId(char* text, int length, cu::Device) {
  std::strncpy(text, "0000:18:00.0", static_cast<std::size_t>(length));
  return step("cuDeviceGetPCIBusId");
}

EXPORT cu::Code cuDevicePrimaryCtxRetain(cu::Context* context, cu::Device) {
  return create("cuDevicePrimaryCtxRetain", context);
}
EXPORT cu::Code cuDevicePrimaryCtxRelease_v2(cu::Device) { return destroy("cuDevicePrimaryCtxRelease"); }
EXPORT cu::Code cuCtxSetCurrent(cu::Context) { return step("cuCtxSetCurrent"); }
EXPORT cu::Code cuCtxPushCurrent_v2(cu::Context) { return step("cuCtxPushCurrent"); }
EXPORT cu::Code cuCtxPopCurrent_v2(cu::Context*) { return step("cuCtxPopCurrent"); }
EXPORT cu::Code cuCtxSynchronize() { return step("cuCtxSynchronize"); }

EXPORT cu::Code cuStreamCreate(cu::Stream* stream, unsigned) { return create("cuStreamCreate", stream); }
EXPORT cu::Code cuStreamDestroy_v2(cu::Stream) { return destroy("cuStreamDestroy"); }
EXPORT cu::Code cuStreamSynchronize(cu::Stream) { return step("cuStreamSynchronize"); }
EXPORT cu::Code cuStreamQuery(cu::Stream) { return step("cuStreamQuery"); }
EXPORT cu::Code cuStreamWaitEvent(cu::Stream, cu::Event, unsigned) { return step("cuStreamWaitEvent"); }
EXPORT cu::Code cuStreamBeginCapture_v2(cu::Stream, int) {
  const auto code = step("cuStreamBeginCapture");
  if (code == 0) ++script.capturing;
  return code;
}
EXPORT cu::Code cuStreamEndCapture(cu::Stream, cu::Graph* graph) {
  --script.capturing;
  return create("cuStreamEndCapture", graph);
}

EXPORT cu::Code cuEventCreate(cu::Event* event, unsigned) { return create("cuEventCreate", event); }
EXPORT cu::Code cuEventDestroy_v2(cu::Event) { return destroy("cuEventDestroy"); }
EXPORT cu::Code cuEventRecord(cu::Event event, cu::Stream) {
  script.ticks[event] = ++script.clock;
  return step("cuEventRecord");
}
EXPORT cu::Code cuEventRecordWithFlags(cu::Event event, cu::Stream, unsigned) {
  script.ticks[event] = ++script.clock;
  return step("cuEventRecordWithFlags");
}
EXPORT cu::Code cuEventSynchronize(cu::Event) { return step("cuEventSynchronize"); }
EXPORT cu::Code cuEventElapsedTime(float* milliseconds, cu::Event start, cu::Event end) {
  *milliseconds = 0.25F * static_cast<float>(script.ticks[end] - script.ticks[start]);
  return step("cuEventElapsedTime");
}

EXPORT cu::Code cuGraphDestroy(cu::Graph) { return destroy("cuGraphDestroy"); }
EXPORT cu::Code cuGraphGetNodes(cu::Graph, cu::GraphNode*, std::size_t* count) {
  *count = 3;
  return step("cuGraphGetNodes");
}
EXPORT cu::Code cuGraphInstantiateWithFlags(cu::GraphExec* exec, cu::Graph, unsigned long long) {
  return create("cuGraphInstantiateWithFlags", exec);
}
EXPORT cu::Code cuGraphExecDestroy(cu::GraphExec) { return destroy("cuGraphExecDestroy"); }
EXPORT cu::Code cuGraphUpload(cu::GraphExec, cu::Stream) { return step("cuGraphUpload"); }
EXPORT cu::Code cuGraphLaunch(cu::GraphExec, cu::Stream) { return step("cuGraphLaunch"); }

EXPORT cu::Code cuMemGetInfo_v2(std::size_t* free, std::size_t* total) {
  *free = 1000;
  *total = 5000;
  return step("cuMemGetInfo");
}
EXPORT cu::Code cuMemAlloc_v2(cu::DevicePointer* pointer, std::size_t) { return create("cuMemAlloc", pointer); }
EXPORT cu::Code cuMemFree_v2(cu::DevicePointer) { return destroy("cuMemFree"); }
EXPORT cu::Code cuMemHostAlloc(void** pointer, std::size_t, unsigned) { return create("cuMemHostAlloc", pointer); }
EXPORT cu::Code cuMemFreeHost(void*) { return destroy("cuMemFreeHost"); }
EXPORT cu::Code cuMemcpyHtoD_v2(cu::DevicePointer, const void*, std::size_t) { return step("cuMemcpyHtoD"); }
EXPORT cu::Code cuMemcpyDtoH_v2(void*, cu::DevicePointer, std::size_t) { return step("cuMemcpyDtoH"); }
EXPORT cu::Code cuMemcpyHtoDAsync_v2(cu::DevicePointer, const void*, std::size_t, cu::Stream) {
  return step("cuMemcpyHtoDAsync");
}
EXPORT cu::Code cuMemcpyDtoHAsync_v2(void*, cu::DevicePointer, std::size_t, cu::Stream) {
  return step("cuMemcpyDtoHAsync");
}
EXPORT cu::Code cuMemcpyDtoDAsync_v2(cu::DevicePointer, cu::DevicePointer, std::size_t, cu::Stream) {
  return step("cuMemcpyDtoDAsync");
}
EXPORT cu::Code cuMemsetD8Async(cu::DevicePointer, unsigned char, std::size_t, cu::Stream) {
  return step("cuMemsetD8Async");
}

EXPORT cu::Code cuModuleLoadData(cu::Module* module, const void*) { return create("cuModuleLoadData", module); }
EXPORT cu::Code cuModuleUnload(cu::Module) { return destroy("cuModuleUnload"); }
EXPORT cu::Code cuModuleGetFunction(cu::Function* function, cu::Module, const char*) {
  *function = reinterpret_cast<cu::Function>(std::uintptr_t{0x42});
  return step("cuModuleGetFunction");
}
EXPORT cu::Code cuModuleGetGlobal_v2(cu::DevicePointer* pointer, std::size_t* bytes, cu::Module, const char*) {
  *pointer = 0x10;
  *bytes = 4;
  return step("cuModuleGetGlobal");
}
EXPORT cu::Code cuFuncGetAttribute(int* value, int attribute, cu::Function) {
  *value = attribute;
  return step("cuFuncGetAttribute");
}
EXPORT cu::Code cuFuncSetAttribute(cu::Function, int, int) { return step("cuFuncSetAttribute"); }
EXPORT cu::Code cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, cu::Function, int, std::size_t) {
  *blocks = 2;
  return step("cuOccupancyMaxActiveBlocksPerMultiprocessor");
}
EXPORT cu::Code cuOccupancyMaxActiveClusters(int* clusters, cu::Function, const cu::LaunchConfig* config) {
  *clusters = static_cast<int>(config->attribute_count);
  return step("cuOccupancyMaxActiveClusters");
}
EXPORT cu::Code cuLaunchKernelEx(const cu::LaunchConfig*, cu::Function, void**, void**) {
  return step("cuLaunchKernelEx");
}
}
