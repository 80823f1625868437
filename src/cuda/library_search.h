// Where CUDA's libraries are looked for. Nothing of CUDA is linked; a machine may have them in a toolkit, in the
// system, in a Python package, or not at all.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/dynamic_library.h"
#include "base/env.h"
#include "cuda/answer.h"

namespace moetune::cuda {

/// One kind of place and what was found there: names for the loader, or files that exist.
struct Place {
  std::string description;  ///< for the report of a failed search, e.g. "CUDA toolkits"
  std::vector<std::string> candidates;
};

/// The places of one library in the order of the search.
struct LibrarySearch {
  std::string library;   ///< what is looked for, in words: "NVRTC", "the CUDA driver"
  std::string variable;  ///< environment variable that names it
  ReasonCode code = ReasonCode::library;
  std::string hint;  ///< how to get one
  std::vector<Place> places;
};

/// What the search reads of its surroundings.
struct SearchRoots {
  std::optional<std::string> named;  ///< by the environment variable: a file or a folder; then nothing else is searched
  std::vector<std::string> toolkits;         ///< roots of CUDA toolkits
  std::vector<std::string> python_prefixes;  ///< e.g. "/usr", "/home/me/venv"
};
/// From this process's environment and /usr/local.
[[nodiscard]] SearchRoots search_roots(Env variable);

/// NVRTC 13, then 12: the variable, the loader's path, toolkits, the nvidia-cuda-nvrtc package of the Python prefixes.
[[nodiscard]] LibrarySearch nvrtc_search(const SearchRoots& roots);
/// The driver comes with the kernel module and never from a toolkit, whose libcuda.so is a stub for linkers.
[[nodiscard]] LibrarySearch driver_search(const SearchRoots& roots);
[[nodiscard]] LibrarySearch nvml_search(const SearchRoots& roots);

/// Opens candidates in order until `accept` takes one; accept says in words what is wrong with a library. The Reason
/// lists all that was tried, at most 2 kB of it.
[[nodiscard]] Answer<DynamicLibrary> find_library(
    const LibrarySearch& search, const std::function<std::optional<std::string>(const DynamicLibrary&)>& accept);

/// Fills a struct of function pointers that lists them in `symbols(self, visit)`; names what the library lacks. One
/// visit a pointer: visit(symbol name, pointer, required).
template <class Api>
[[nodiscard]] std::optional<std::string> resolve(const DynamicLibrary& library, Api& api) {
  std::string missing;
  Api::symbols(api, [&]<class Pointer>(const char* name, Pointer& pointer, bool required = true) {
    pointer = library.symbol<Pointer>(name);
    if (pointer == nullptr && required) missing += (missing.empty() ? "" : ", ") + std::string(name);
  });
  if (missing.empty()) return std::nullopt;
  return "it has no " + missing;
}

}  // namespace moetune::cuda
