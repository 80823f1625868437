#include "base/dynamic_library.h"

#include <dlfcn.h>
#include <link.h>

#include <cstddef>
#include <utility>

namespace moetune {
namespace {

constexpr std::size_t kMaxErrorBytes = 2000;

std::string loader_words() {
  const char* words = ::dlerror();
  return words != nullptr ? words : "the loader gave no reason";
}

}  // namespace

Result<DynamicLibrary> DynamicLibrary::open(std::span<const std::string> candidates) {
  std::string tried;
  for (const auto& candidate : candidates) {
    // An empty name would open the program itself.
    if (candidate.empty()) continue;
    if (void* handle = ::dlopen(candidate.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE); handle != nullptr)
      return DynamicLibrary(handle, candidate);
    if (!tried.empty()) tried += "; ";
    // The loader's words usually begin with the name.
    const std::string words = loader_words();
    if (!words.starts_with(candidate)) tried.append(candidate).append(": ");
    tried += words;
  }
  if (tried.empty()) return fail("no shared library named to open");
  if (tried.size() > kMaxErrorBytes) tried = tried.substr(0, kMaxErrorBytes) + "...";
  return fail("cannot open a shared library: " + tried);
}

DynamicLibrary::DynamicLibrary(void* handle, std::string name) : handle_(handle), name_(std::move(name)) {}

DynamicLibrary::DynamicLibrary(DynamicLibrary&& other) noexcept
    : handle_(std::exchange(other.handle_, nullptr)), name_(std::move(other.name_)) {}

DynamicLibrary& DynamicLibrary::operator=(DynamicLibrary&& other) noexcept {
  std::swap(handle_, other.handle_);
  std::swap(name_, other.name_);
  return *this;
}

DynamicLibrary::~DynamicLibrary() {
  if (handle_ != nullptr) ::dlclose(handle_);
}

void* DynamicLibrary::find(const char* name) const { return handle_ != nullptr ? ::dlsym(handle_, name) : nullptr; }

std::string DynamicLibrary::path() const {
  link_map* map = nullptr;
  if (handle_ == nullptr || ::dlinfo(handle_, RTLD_DI_LINKMAP, &map) != 0 || map == nullptr || *map->l_name == '\0')
    return name_;
  return map->l_name;
}

}  // namespace moetune
