// The part of NVRTC's C interface that is used here, as driver_api.h has the driver's: the functions and values of
// NVRTC 12
// ("NVRTC", docs.nvidia.com/cuda/nvrtc), unchanged in 13.
#pragma once

#include <cstddef>

namespace moetune::cuda {

namespace nvrtc {
using Code = int;  ///< nvrtcResult; 0 is success
using Program = struct ProgramObject*;
constexpr Code kSuccess = 0, kOutOfMemory = 1, kInvalidOption = 5, kCompilation = 6, kBuiltinOperationFailure = 7,
               kNameExpressionNotValid = 10;
}  // namespace nvrtc

struct NvrtcApi {
  nvrtc::Code (*version)(int* major, int* minor) = nullptr;
  const char* (*error_string)(nvrtc::Code code) = nullptr;
  nvrtc::Code (*supported_arch_count)(int* count) = nullptr;
  nvrtc::Code (*supported_archs)(int* archs) = nullptr;
  nvrtc::Code (*create)(nvrtc::Program* program, const char* text, const char* name, int headers,
                        const char* const* header_texts, const char* const* header_names) = nullptr;
  nvrtc::Code (*destroy)(nvrtc::Program* program) = nullptr;
  nvrtc::Code (*add_expression)(nvrtc::Program program, const char* expression) = nullptr;
  nvrtc::Code (*compile)(nvrtc::Program program, int options, const char* const* option_texts) = nullptr;
  nvrtc::Code (*log_size)(nvrtc::Program program, std::size_t* bytes) = nullptr;
  nvrtc::Code (*log)(nvrtc::Program program, char* text) = nullptr;
  nvrtc::Code (*cubin_size)(nvrtc::Program program, std::size_t* bytes) = nullptr;
  nvrtc::Code (*cubin)(nvrtc::Program program, char* bytes) = nullptr;
  nvrtc::Code (*lowered_name)(nvrtc::Program program, const char* expression, const char** name) = nullptr;

  template <class Self, class Visitor>
  static void symbols(Self& self, Visitor&& visit) {
    visit("nvrtcVersion", self.version);
    visit("nvrtcGetErrorString", self.error_string);
    visit("nvrtcGetNumSupportedArchs", self.supported_arch_count);
    visit("nvrtcGetSupportedArchs", self.supported_archs);
    visit("nvrtcCreateProgram", self.create);
    visit("nvrtcDestroyProgram", self.destroy);
    visit("nvrtcAddNameExpression", self.add_expression);
    visit("nvrtcCompileProgram", self.compile);
    visit("nvrtcGetProgramLogSize", self.log_size);
    visit("nvrtcGetProgramLog", self.log);
    visit("nvrtcGetCUBINSize", self.cubin_size);
    visit("nvrtcGetCUBIN", self.cubin);
    visit("nvrtcGetLoweredName", self.lowered_name);
  }
};

}  // namespace moetune::cuda
