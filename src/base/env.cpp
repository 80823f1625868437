#include "base/env.h"

#include <cstdlib>

namespace moetune {

std::optional<std::string> env(Env variable) {
  const char* value = std::getenv(std::string(to_string(variable)).c_str());
  if (value == nullptr || *value == '\0') return std::nullopt;
  return std::string(value);
}

}  // namespace moetune
