// For tests: reads what scripts/make_fixtures.py wrote.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstring>
#include <string>
#include <vector>

#include "base/json.h"

namespace moetune {

/// A file of tests/fixtures/; the test fails where it cannot be read.
inline Json read_fixture(const std::string& name) {
  auto json = read_json(std::string(MOETUNE_SOURCE_DIR) + "/tests/fixtures/" + name);
  EXPECT_TRUE(json) << (json ? "" : json.error().what);
  return json ? *std::move(json) : Json::object();
}

/// The values of a hexadecimal string, little-endian, one after another.
template <class T>
std::vector<T> unhex(const Json& json) {
  const auto text = json.get<std::string>();
  std::vector<std::byte> bytes;
  for (std::size_t i = 0; i + 1 < text.size(); i += 2)
    bytes.push_back(static_cast<std::byte>(std::stoi(text.substr(i, 2), nullptr, 16)));
  EXPECT_EQ(bytes.size() % sizeof(T), 0U);
  std::vector<T> values(bytes.size() / sizeof(T));
  if (!values.empty()) std::memcpy(values.data(), bytes.data(), values.size() * sizeof(T));
  return values;
}

}  // namespace moetune
