// A library with NVRTC's functions and no compiler behind them, for tests: it answers what it is told to.
#include <cstring>

#include "cuda/nvrtc_api.h"

namespace {

using namespace moetune::cuda;

struct Script {
  int major = 13, minor = 0;
  nvrtc::Code empty_code = 0;  // of the program without text that a library is tried with
  std::size_t empty_bytes = 8;
  nvrtc::Code compile_code = 0;  // of any other
  std::size_t cubin_bytes = 8;
};
Script script;

struct Scripted {
  bool is_empty = false;
};

Scripted* of(nvrtc::Program program) { return reinterpret_cast<Scripted*>(program); }

}  // namespace

extern "C" {
#define EXPORT __attribute__((visibility("default")))

EXPORT void scripted_version(int major, int minor) { script = {major, minor}; }
EXPORT void scripted_empty(int code, std::size_t bytes) {
  script.empty_code = code;
  script.empty_bytes = bytes;
}
EXPORT void scripted_compile(int code, std::size_t bytes) {
  script.compile_code = code;
  script.cubin_bytes = bytes;
}

EXPORT nvrtc::Code nvrtcVersion(int* major, int* minor) {
  *major = script.major;
  *minor = script.minor;
  return 0;
}
EXPORT const char* nvrtcGetErrorString(nvrtc::Code code) { return code == 0 ? "NVRTC_SUCCESS" : "NVRTC_ERROR"; }
EXPORT nvrtc::Code nvrtcGetNumSupportedArchs(int* count) {
  *count = 1;
  return 0;
}
EXPORT nvrtc::Code nvrtcGetSupportedArchs(int* archs) {
  *archs = 90;
  return 0;
}
EXPORT nvrtc::Code nvrtcCreateProgram(nvrtc::Program* program, const char* text, const char*, int, const char* const*,
                                      const char* const*) {
  *program = reinterpret_cast<nvrtc::Program>(new Scripted{*text == '\0'});
  return 0;
}
EXPORT nvrtc::Code nvrtcDestroyProgram(nvrtc::Program* program) {
  delete of(*program);
  *program = nullptr;
  return 0;
}
EXPORT nvrtc::Code nvrtcAddNameExpression(nvrtc::Program, const char*) { return 0; }
EXPORT nvrtc::Code nvrtcCompileProgram(nvrtc::Program program, int, const char* const*) {
  return of(program)->is_empty ? script.empty_code : script.compile_code;
}
EXPORT nvrtc::Code nvrtcGetProgramLogSize(nvrtc::Program, std::size_t* bytes) {
  *bytes = sizeof "k.cu(1): error: as told";
  return 0;
}
EXPORT nvrtc::Code nvrtcGetProgramLog(nvrtc::Program, char* text) {
  std::strcpy(text, "k.cu(1): error: as told");
  return 0;
}
EXPORT nvrtc::Code nvrtcGetCUBINSize(nvrtc::Program program, std::size_t* bytes) {
  *bytes = of(program)->is_empty ? script.empty_bytes : script.cubin_bytes;
  return 0;
}
EXPORT nvrtc::Code nvrtcGetCUBIN(nvrtc::Program program, char* bytes) {
  std::memset(bytes, 'x', of(program)->is_empty ? script.empty_bytes : script.cubin_bytes);
  return 0;
}
EXPORT nvrtc::Code nvrtcGetLoweredName(nvrtc::Program, const char* expression, const char** name) {
  *name = expression;
  return 0;
}
}
