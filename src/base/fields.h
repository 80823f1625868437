// One field list per struct, visited by everything that needs it: JSON, cache keys, printing.
//
//   struct Point {
//     int x = 0, y = 0;
//     template <class Self, class Visitor>
//     static void fields(Self& self, Visitor&& visit) { visit("x", self.x); visit("y", self.y); }
//   };
//
// An enum lists its names once, in the order of its values:
//
//   template <> struct EnumNames<Colour> { static constexpr std::array<std::string_view, 2> names = {"red", "green"};
//   };
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <string_view>
#include <type_traits>

namespace moetune {

template <class E>
struct EnumNames;

template <class E>
concept NamedEnum = std::is_enum_v<E> && requires {
  EnumNames<E>::names;
};

/// The enum's name as machine-readable output spells it.
template <NamedEnum E>
[[nodiscard]] constexpr std::string_view to_string(E value) {
  return EnumNames<E>::names[static_cast<std::size_t>(value)];
}

/// The value with that name; nothing if there is none.
template <NamedEnum E>
[[nodiscard]] constexpr std::optional<E> parse_enum(std::string_view name) {
  for (std::size_t i = 0; i < EnumNames<E>::names.size(); ++i)
    if (EnumNames<E>::names[i] == name) return static_cast<E>(i);
  return std::nullopt;
}

namespace detail {
struct AnyVisitor {
  template <class T>
  void operator()(std::string_view, T&&) const {}
};
}  // namespace detail

/// A struct with a static `fields(self, visit)`.
template <class T>
concept HasFields = requires(T& value) {
  std::remove_const_t<T>::fields(value, detail::AnyVisitor{});
};

}  // namespace moetune
