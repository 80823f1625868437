#include "cuda/library_search.h"

#include <fmt/format.h>
#include <string.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <span>
#include <string_view>
#include <utility>

namespace moetune::cuda {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMaxReportBytes = 2000;
// Newest first. An 11 is opened only to be able to say that it is too old.
constexpr std::array<std::string_view, 3> kNvrtcNames = {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so.11.2"};
constexpr std::array<std::string_view, 1> kDriverNames = {"libcuda.so.1"};
constexpr std::array<std::string_view, 1> kNvmlNames = {"libnvidia-ml.so.1"};

bool is_there(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

/// Subfolders whose name begins with `prefix`, the highest version first ("cuda-13.10" before "cuda-13.9").
std::vector<fs::path> folders_with_prefix(const fs::path& parent, std::string_view prefix) {
  std::vector<fs::path> found;
  std::error_code error;
  for (fs::directory_iterator entry(parent, error), end; !error && entry != end; entry.increment(error))
    if (entry->path().filename().string().starts_with(prefix)) found.push_back(entry->path());
  std::sort(found.begin(), found.end(),
            [](const fs::path& a, const fs::path& b) { return ::strverscmp(a.c_str(), b.c_str()) > 0; });
  return found;
}

void add_unique(std::vector<std::string>& list, std::string item) {
  if (std::find(list.begin(), list.end(), item) == list.end()) list.push_back(std::move(item));
}

Place place_in_folders(std::string description, const std::vector<fs::path>& folders,
                       std::span<const std::string_view> names) {
  Place place{std::move(description), {}};
  for (const auto name : names)
    for (const auto& folder : folders)
      if (is_there(folder / name)) add_unique(place.candidates, (folder / name).string());
  return place;
}

Place named_place(const std::string& named, const std::string& variable, std::span<const std::string_view> names) {
  std::error_code ignored;
  if (!fs::is_directory(named, ignored)) return {variable, {named}};
  auto place = place_in_folders(variable, {fs::path(named)}, names);
  place.description = fmt::format("{} (the folder {})", variable, named);
  return place;
}

Place loader_place(std::span<const std::string_view> names) {
  return {"the loader's path", {names.begin(), names.end()}};
}

std::vector<fs::path> package_folders(const std::vector<std::string>& prefixes) {
  std::vector<fs::path> folders;
  const auto add_site = [&folders](const fs::path& site) {
    for (const auto& cuda : folders_with_prefix(site / "nvidia", "cu")) {
      if (is_there(cuda / "lib")) folders.push_back(cuda / "lib");
    }
  };
  for (const fs::path prefix : prefixes) {
    for (const auto* lib : {"lib", "lib64", "local/lib"})
      for (const auto& python : folders_with_prefix(prefix / lib, "python3"))
        for (const auto* site : {"site-packages", "dist-packages"}) add_site(python / site);
  }
  return folders;
}

std::vector<std::string> python_prefixes(std::string_view path) {
  constexpr std::size_t kMaxFolders = 64;
  std::vector<std::string> prefixes;
  while (!path.empty() && prefixes.size() < kMaxFolders) {
    const auto colon = path.find(':');
    const fs::path folder(path.substr(0, colon));
    if (folder.is_absolute() && folder.filename() == "bin") add_unique(prefixes, folder.parent_path().string());
    path = colon == std::string_view::npos ? std::string_view{} : path.substr(colon + 1);
  }
  return prefixes;
}

LibrarySearch system_search(LibrarySearch search, const SearchRoots& roots, std::span<const std::string_view> names) {
  if (roots.named) {
    search.places = {named_place(*roots.named, search.variable, names)};
    return search;
  }
  search.places = {loader_place(names), place_in_folders("folders of containers and WSL",
                                                         {"/usr/local/nvidia/lib64", "/usr/lib/wsl/lib"}, names)};
  return search;
}

}  // namespace

SearchRoots search_roots(Env variable) {
  SearchRoots roots;
  roots.named = env(variable);
  for (const Env home : {Env::cuda_home, Env::cuda_path})
    if (auto value = env(home)) add_unique(roots.toolkits, *std::move(value));
  // /usr/local/cuda is the one that the machine's owner chose among those beside it.
  add_unique(roots.toolkits, "/usr/local/cuda");
  for (const auto& folder : folders_with_prefix("/usr/local", "cuda")) add_unique(roots.toolkits, folder.string());
  if (const auto path = env(Env::path)) roots.python_prefixes = python_prefixes(*path);
  return roots;
}

LibrarySearch nvrtc_search(const SearchRoots& roots) {
  LibrarySearch search{"NVRTC, CUDA's run-time compiler,",
                       std::string(to_string(Env::nvrtc)),
                       ReasonCode::toolchain,
                       "pip install nvidia-cuda-nvrtc, or name the library with MOETUNE_NVRTC",
                       {}};
  if (roots.named) {
    search.places = {named_place(*roots.named, search.variable, kNvrtcNames)};
    return search;
  }
  std::vector<fs::path> toolkit_folders;
  for (const fs::path root : roots.toolkits)
    for (const auto* lib : {"lib64", "lib", "targets/x86_64-linux/lib", "targets/sbsa-linux/lib"})
      toolkit_folders.push_back(root / lib);
  search.places = {
      loader_place(kNvrtcNames),
      place_in_folders("CUDA toolkits (CUDA_HOME, CUDA_PATH, /usr/local/cuda*)", toolkit_folders, kNvrtcNames),
      place_in_folders("nvidia-cuda-nvrtc packages of the Pythons on PATH", package_folders(roots.python_prefixes),
                       kNvrtcNames)};
  return search;
}

LibrarySearch driver_search(const SearchRoots& roots) {
  return system_search({"the CUDA driver",
                        std::string(to_string(Env::cuda_driver)),
                        ReasonCode::driver,
                        "install NVIDIA's driver, or start the container with access to the GPU",
                        {}},
                       roots, kDriverNames);
}

LibrarySearch nvml_search(const SearchRoots& roots) {
  return system_search({"NVML, the driver's management library,",
                        std::string(to_string(Env::nvml)),
                        ReasonCode::driver,
                        "install NVIDIA's driver, or start the container with access to the GPU",
                        {}},
                       roots, kNvmlNames);
}

Answer<DynamicLibrary> find_library(const LibrarySearch& search,
                                    const std::function<std::optional<std::string>(const DynamicLibrary&)>& accept) {
  std::vector<std::string> tried;
  for (const auto& place : search.places) {
    if (place.candidates.empty()) tried.push_back("none in " + place.description);
    for (const auto& candidate : place.candidates) {
      auto library = DynamicLibrary::open(std::span(&candidate, 1));
      if (!library) {
        tried.push_back(std::move(library).error().what);
        continue;
      }
      auto objection = accept(*library);
      if (!objection) return *std::move(library);
      tried.push_back(library->path() + ": " + *objection);
    }
  }
  std::string have = fmt::format("{} was not found: {}", search.library, fmt::join(tried, "; "));
  if (have.size() > kMaxReportBytes) have = have.substr(0, kMaxReportBytes) + "...";
  return refuse({search.code, std::move(have), search.library + " that works", search.hint, ""});
}

}  // namespace moetune::cuda
