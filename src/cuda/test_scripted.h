// The scripted driver (scripted_driver.cpp) from a test's side.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <span>
#include <string>

#include "base/dynamic_library.h"
#include "cuda/driver.h"

namespace moetune::cuda {

class ScriptedDriver {
 public:
  static std::string path() { return CUDA_SCRIPTED_DRIVER; }
  static ScriptedDriver& get() {
    static ScriptedDriver driver;
    return driver;
  }
  /// Forgets all; the fail_at-th call from now on fails with fail_code (0: none does).
  void reset(int version = 13000, int devices = 1, int fail_at = 0, int fail_code = 0) {
    library_.symbol<void (*)(int, int, int, int)>("scripted_reset")(version, devices, fail_at, fail_code);
  }
  /// reset, and the driver opened on it; null and a failure where it does not open.
  std::shared_ptr<const Driver> open(int devices = 1) {
    reset(13000, devices);
    SearchRoots roots;
    roots.named = path();
    auto driver = Driver::open(driver_search(roots));
    if (driver) return *driver;
    ADD_FAILURE() << driver.error().have;
    return nullptr;
  }
  int live() { return library_.symbol<int (*)()>("scripted_live")(); }
  int calls() { return library_.symbol<int (*)()>("scripted_calls")(); }
  int capturing() { return library_.symbol<int (*)()>("scripted_capturing")(); }
  std::string failed_call() { return library_.symbol<const char* (*)()>("scripted_failed_call")(); }

 private:
  ScriptedDriver() : library_(load()) {}
  static DynamicLibrary load() {
    const std::string name = path();
    auto library = DynamicLibrary::open(std::span(&name, 1));
    return std::move(library).value();
  }
  DynamicLibrary library_;
};

}  // namespace moetune::cuda
