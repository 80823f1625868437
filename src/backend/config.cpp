#include "backend/config.h"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

namespace moetune {

std::int64_t Config::get(std::string_view name) const {
  const auto found = std::find_if(values.begin(), values.end(), [&](const auto& entry) { return entry.first == name; });
  if (found == values.end()) throw std::logic_error(fmt::format("config has no axis '{}'", name));
  return found->second;
}

Json Config::json() const {
  Json object = Json::object();
  for (const auto& [name, value] : values) object[name] = value;
  return object;
}

Status Config::read_json(const Json& json) {
  if (!json.is_object()) return fail("a config is an object of integers, found " + dump_json(json).substr(0, 60));
  values.clear();
  for (const auto& [name, value] : json.items()) {
    std::int64_t number = 0;
    if (auto status = from_json(value, number); !status) return fail_in(name, status.error());
    values.emplace_back(name, number);
  }
  return {};
}

std::string describe(const Config& config) {
  std::string text;
  for (const auto& [name, value] : config.values) text += fmt::format("{}{}={}", text.empty() ? "" : " ", name, value);
  return text;
}

bool Space::contains(const Config& config) const {
  if (config.values.size() != axes.size()) return false;
  for (std::size_t i = 0; i < axes.size(); ++i) {
    const auto& [name, value] = config.values[i];
    if (name != axes[i].name || std::find(axes[i].values.begin(), axes[i].values.end(), value) == axes[i].values.end())
      return false;
  }
  return !admits || admits(config);
}

std::vector<Config> Space::all() const {
  std::vector<Config> configs;
  Config current;
  for (const auto& axis : axes) current.values.emplace_back(axis.name, 0);
  const auto fill = [&](const auto& self, std::size_t axis) -> void {
    if (axis == axes.size()) {
      if (!admits || admits(current)) configs.push_back(current);
      return;
    }
    for (const auto value : axes[axis].values) {
      current.values[axis].second = value;
      self(self, axis + 1);
    }
  };
  fill(fill, 0);
  return configs;
}

}  // namespace moetune
