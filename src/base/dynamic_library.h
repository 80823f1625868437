// Shared libraries opened at run time, so that building needs none of them and one binary runs with and without.
#pragma once

#include <span>
#include <string>

#include "base/error.h"

namespace moetune {

/// An open shared library. Move-only. It stays in the process until its end, also when this object is destroyed: the
/// libraries opened here start threads and register handlers of their own, which unloading would leave without code.
class DynamicLibrary {
 public:
  /// The first of the candidates that opens: names for the loader's own search ("libcuda.so.1") or paths. The error
  /// lists every candidate with the loader's words, at most 2 kB of them.
  [[nodiscard]] static Result<DynamicLibrary> open(std::span<const std::string> candidates);
  DynamicLibrary(DynamicLibrary&& other) noexcept;
  DynamicLibrary& operator=(DynamicLibrary&& other) noexcept;
  DynamicLibrary(const DynamicLibrary&) = delete;
  DynamicLibrary& operator=(const DynamicLibrary&) = delete;
  ~DynamicLibrary();

  /// The address of a function as its pointer type; null where the library has none of that name. The caller vouches
  /// for the type.
  template <class Pointer>
  [[nodiscard]] Pointer symbol(const char* name) const {
    return reinterpret_cast<Pointer>(find(name));
  }
  /// The candidate that opened.
  [[nodiscard]] const std::string& name() const { return name_; }
  /// The file it came from; the candidate's name where the loader does not say.
  [[nodiscard]] std::string path() const;

 private:
  DynamicLibrary(void* handle, std::string name);
  [[nodiscard]] void* find(const char* name) const;

  void* handle_ = nullptr;
  std::string name_;
};

}  // namespace moetune
