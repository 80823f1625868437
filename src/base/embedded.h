// Files compiled into the binary, so that one executable is all a machine needs. See moetune_embed in
// cmake/moetune.cmake.
#pragma once

#include <span>
#include <string_view>

namespace moetune {

struct EmbeddedFile {
  std::string_view name;  ///< path relative to the project's root, e.g. "data/gpus.toml"
  std::string_view text;  ///< the whole file, byte for byte
};

}  // namespace moetune
