// The part of the CUDA driver's C interface that is used here, declared by hand so that building needs no CUDA. Types,
// values and symbol names are those of the driver's documented interface of CUDA 12 ("CUDA Driver API",
// docs.nvidia.com/cuda/cuda-driver-api); where a function was revised, the symbol that the header of CUDA 12 maps the
// plain name to ("cuMemAlloc" is `cuMemAlloc_v2`).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace moetune::cuda {

namespace cu {

using Code = int;  ///< CUresult; 0 is success
using Device = int;
using Context = struct ContextObject*;
using Stream = struct StreamObject*;
using Event = struct EventObject*;
using Module = struct ModuleObject*;
using Function = struct FunctionObject*;
using Graph = struct GraphObject*;
using GraphExec = struct GraphExecObject*;
using GraphNode = struct GraphNodeObject*;
using DevicePointer = std::uint64_t;

constexpr Code kSuccess = 0, kInvalidValue = 1, kOutOfMemory = 2, kStubLibrary = 34, kNoDevice = 100,
               kInvalidImage = 200, kNoBinaryForGpu = 209, kEccUncorrectable = 214, kNvlinkUncorrectable = 220,
               kUnsupportedPtxVersion = 222, kContained = 226, kNotReady = 600, kIllegalAddress = 700,
               kLaunchOutOfResources = 701, kLaunchTimeout = 702, kContextIsDestroyed = 709, kAssert = 710,
               kHardwareStackError = 714, kIllegalInstruction = 715, kMisalignedAddress = 716,
               kInvalidAddressSpace = 717, kInvalidPc = 718, kLaunchFailed = 719, kTensorMemoryLeak = 721,
               kUnknown = 999;

/// CUdevice_attribute
enum class DeviceAttribute : int {
  max_threads_per_block = 1,
  max_shared_per_block = 8,
  max_registers_per_block = 12,
  clock_rate_khz = 13,
  multiprocessors = 16,
  integrated = 18,
  memory_clock_rate_khz = 36,
  memory_bus_bits = 37,
  l2_bytes = 38,
  max_threads_per_sm = 39,
  compute_major = 75,
  compute_minor = 76,
  max_shared_per_sm = 81,
  max_registers_per_sm = 82,
  max_shared_per_block_optin = 97,
  max_blocks_per_sm = 106,
  reserved_shared_per_block = 111,
  cluster_launch = 120
};

/// CUfunction_attribute
enum class FunctionAttribute : int {
  max_threads_per_block = 0,
  static_shared_bytes = 1,
  constant_bytes = 2,
  local_bytes = 3,
  registers = 4,
  binary_version = 6,
  max_dynamic_shared_bytes = 8,
  non_portable_cluster_allowed = 14
};

constexpr unsigned kStreamNonBlocking = 1, kEventRecordExternal = 1;
constexpr int kCaptureThreadLocal = 1;

/// CUlaunchAttribute: an id and a union of 64 bytes.
struct LaunchAttribute {
  enum Id : int { kCooperative = 2, kClusterDimension = 4, kProgrammaticStreamSerialization = 6 };
  int id = 0;
  int padding = 0;
  union Value {
    std::array<unsigned char, 64> bytes;
    std::array<unsigned, 3> cluster;
    int flag;
  } value{};
};
static_assert(sizeof(LaunchAttribute) == 72 && offsetof(LaunchAttribute, value) == 8);

/// CUlaunchConfig
struct LaunchConfig {
  std::array<unsigned, 3> grid{}, block{};
  unsigned shared_bytes = 0;
  Stream stream = nullptr;
  LaunchAttribute* attributes = nullptr;
  unsigned attribute_count = 0;
};
static_assert(offsetof(LaunchConfig, stream) == 32 && sizeof(LaunchConfig) == 56);

struct Uuid {
  std::array<unsigned char, 16> bytes;
};

}  // namespace cu

/// One pointer a function, named as the driver names it less the "cu".
struct DriverApi {
  cu::Code (*init)(unsigned flags) = nullptr;
  cu::Code (*driver_version)(int* version) = nullptr;
  cu::Code (*error_name)(cu::Code code, const char** name) = nullptr;
  cu::Code (*error_string)(cu::Code code, const char** text) = nullptr;

  cu::Code (*device_count)(int* count) = nullptr;
  cu::Code (*device_get)(cu::Device* device, int ordinal) = nullptr;
  cu::Code (*device_name)(char* name, int length, cu::Device device) = nullptr;
  cu::Code (*device_uuid)(cu::Uuid* uuid, cu::Device device) = nullptr;
  cu::Code (*device_attribute)(int* value, int attribute, cu::Device device) = nullptr;
  cu::Code (*device_total_memory)(std::size_t* bytes, cu::Device device) = nullptr;
  cu::Code (*device_pci_bus_id)(char* text, int length, cu::Device device) = nullptr;

  cu::Code (*primary_context_retain)(cu::Context* context, cu::Device device) = nullptr;
  cu::Code (*primary_context_release)(cu::Device device) = nullptr;
  cu::Code (*context_set_current)(cu::Context context) = nullptr;
  cu::Code (*context_push)(cu::Context context) = nullptr;
  cu::Code (*context_pop)(cu::Context* context) = nullptr;
  cu::Code (*context_synchronize)() = nullptr;

  cu::Code (*stream_create)(cu::Stream* stream, unsigned flags) = nullptr;
  cu::Code (*stream_destroy)(cu::Stream stream) = nullptr;
  cu::Code (*stream_synchronize)(cu::Stream stream) = nullptr;
  cu::Code (*stream_query)(cu::Stream stream) = nullptr;
  cu::Code (*stream_wait_event)(cu::Stream stream, cu::Event event, unsigned flags) = nullptr;
  cu::Code (*stream_begin_capture)(cu::Stream stream, int mode) = nullptr;
  cu::Code (*stream_end_capture)(cu::Stream stream, cu::Graph* graph) = nullptr;

  cu::Code (*event_create)(cu::Event* event, unsigned flags) = nullptr;
  cu::Code (*event_destroy)(cu::Event event) = nullptr;
  cu::Code (*event_record)(cu::Event event, cu::Stream stream) = nullptr;
  cu::Code (*event_record_with_flags)(cu::Event event, cu::Stream stream, unsigned flags) = nullptr;
  cu::Code (*event_synchronize)(cu::Event event) = nullptr;
  cu::Code (*event_elapsed_time)(float* milliseconds, cu::Event start, cu::Event end) = nullptr;

  cu::Code (*graph_destroy)(cu::Graph graph) = nullptr;
  cu::Code (*graph_get_nodes)(cu::Graph graph, cu::GraphNode* nodes, std::size_t* count) = nullptr;
  cu::Code (*graph_instantiate)(cu::GraphExec* exec, cu::Graph graph, unsigned long long flags) = nullptr;
  cu::Code (*graph_exec_destroy)(cu::GraphExec exec) = nullptr;
  cu::Code (*graph_upload)(cu::GraphExec exec, cu::Stream stream) = nullptr;
  cu::Code (*graph_launch)(cu::GraphExec exec, cu::Stream stream) = nullptr;

  cu::Code (*memory_info)(std::size_t* free, std::size_t* total) = nullptr;
  cu::Code (*memory_alloc)(cu::DevicePointer* pointer, std::size_t bytes) = nullptr;
  cu::Code (*memory_free)(cu::DevicePointer pointer) = nullptr;
  cu::Code (*memory_host_alloc)(void** pointer, std::size_t bytes, unsigned flags) = nullptr;
  cu::Code (*memory_free_host)(void* pointer) = nullptr;
  cu::Code (*copy_to_device)(cu::DevicePointer to, const void* from, std::size_t bytes) = nullptr;
  cu::Code (*copy_to_host)(void* to, cu::DevicePointer from, std::size_t bytes) = nullptr;
  cu::Code (*copy_to_device_async)(cu::DevicePointer to, const void* from, std::size_t bytes,
                                   cu::Stream stream) = nullptr;
  cu::Code (*copy_to_host_async)(void* to, cu::DevicePointer from, std::size_t bytes, cu::Stream stream) = nullptr;
  cu::Code (*copy_on_device_async)(cu::DevicePointer to, cu::DevicePointer from, std::size_t bytes,
                                   cu::Stream stream) = nullptr;
  cu::Code (*set_bytes_async)(cu::DevicePointer to, unsigned char value, std::size_t count,
                              cu::Stream stream) = nullptr;

  cu::Code (*module_load_data)(cu::Module* module, const void* image) = nullptr;
  cu::Code (*module_unload)(cu::Module module) = nullptr;
  cu::Code (*module_get_function)(cu::Function* function, cu::Module module, const char* name) = nullptr;
  cu::Code (*module_get_global)(cu::DevicePointer* pointer, std::size_t* bytes, cu::Module module,
                                const char* name) = nullptr;
  cu::Code (*function_get_attribute)(int* value, int attribute, cu::Function function) = nullptr;
  cu::Code (*function_set_attribute)(cu::Function function, int attribute, int value) = nullptr;
  cu::Code (*occupancy_blocks)(int* blocks, cu::Function function, int threads,
                               std::size_t dynamic_shared_bytes) = nullptr;
  cu::Code (*occupancy_clusters)(int* clusters, cu::Function function, const cu::LaunchConfig* config) = nullptr;
  cu::Code (*launch_kernel)(const cu::LaunchConfig* config, cu::Function function, void** arguments,
                            void** extra) = nullptr;

  /// Every symbol once. All are in every driver from 11.8 on.
  template <class Self, class Visitor>
  static void symbols(Self& self, Visitor&& visit) {
    visit("cuInit", self.init);
    visit("cuDriverGetVersion", self.driver_version);
    visit("cuGetErrorName", self.error_name);
    visit("cuGetErrorString", self.error_string);
    visit("cuDeviceGetCount", self.device_count);
    visit("cuDeviceGet", self.device_get);
    visit("cuDeviceGetName", self.device_name);
    visit("cuDeviceGetUuid_v2", self.device_uuid);
    visit("cuDeviceGetAttribute", self.device_attribute);
    visit("cuDeviceTotalMem_v2", self.device_total_memory);
    visit("cuDeviceGetPCIBusId", self.device_pci_bus_id);
    visit("cuDevicePrimaryCtxRetain", self.primary_context_retain);
    visit("cuDevicePrimaryCtxRelease_v2", self.primary_context_release);
    visit("cuCtxSetCurrent", self.context_set_current);
    visit("cuCtxPushCurrent_v2", self.context_push);
    visit("cuCtxPopCurrent_v2", self.context_pop);
    visit("cuCtxSynchronize", self.context_synchronize);
    visit("cuStreamCreate", self.stream_create);
    visit("cuStreamDestroy_v2", self.stream_destroy);
    visit("cuStreamSynchronize", self.stream_synchronize);
    visit("cuStreamQuery", self.stream_query);
    visit("cuStreamWaitEvent", self.stream_wait_event);
    visit("cuStreamBeginCapture_v2", self.stream_begin_capture);
    visit("cuStreamEndCapture", self.stream_end_capture);
    visit("cuEventCreate", self.event_create);
    visit("cuEventDestroy_v2", self.event_destroy);
    visit("cuEventRecord", self.event_record);
    visit("cuEventRecordWithFlags", self.event_record_with_flags);
    visit("cuEventSynchronize", self.event_synchronize);
    visit("cuEventElapsedTime", self.event_elapsed_time);
    visit("cuGraphDestroy", self.graph_destroy);
    visit("cuGraphGetNodes", self.graph_get_nodes);
    visit("cuGraphInstantiateWithFlags", self.graph_instantiate);
    visit("cuGraphExecDestroy", self.graph_exec_destroy);
    visit("cuGraphUpload", self.graph_upload);
    visit("cuGraphLaunch", self.graph_launch);
    visit("cuMemGetInfo_v2", self.memory_info);
    visit("cuMemAlloc_v2", self.memory_alloc);
    visit("cuMemFree_v2", self.memory_free);
    visit("cuMemHostAlloc", self.memory_host_alloc);
    visit("cuMemFreeHost", self.memory_free_host);
    visit("cuMemcpyHtoD_v2", self.copy_to_device);
    visit("cuMemcpyDtoH_v2", self.copy_to_host);
    visit("cuMemcpyHtoDAsync_v2", self.copy_to_device_async);
    visit("cuMemcpyDtoHAsync_v2", self.copy_to_host_async);
    visit("cuMemcpyDtoDAsync_v2", self.copy_on_device_async);
    visit("cuMemsetD8Async", self.set_bytes_async);
    visit("cuModuleLoadData", self.module_load_data);
    visit("cuModuleUnload", self.module_unload);
    visit("cuModuleGetFunction", self.module_get_function);
    visit("cuModuleGetGlobal_v2", self.module_get_global);
    visit("cuFuncGetAttribute", self.function_get_attribute);
    visit("cuFuncSetAttribute", self.function_set_attribute);
    visit("cuOccupancyMaxActiveBlocksPerMultiprocessor", self.occupancy_blocks);
    visit("cuOccupancyMaxActiveClusters", self.occupancy_clusters);
    visit("cuLaunchKernelEx", self.launch_kernel);
  }
};

}  // namespace moetune::cuda
