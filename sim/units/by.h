// By has one value for each enumerator of a type, for tables that nothing else may subscript.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <type_traits>

namespace ddpsim {

// The enumerators of a type, in order. REQUIRES: they are 0 to N - 1.
template <class Name, std::size_t N>
constexpr std::array<Name, N> all_of() {
  std::array<Name, N> out{};
  for (std::size_t i = 0; i < N; ++i) out[i] = static_cast<Name>(i);
  return out;
}

// REQUIRES: Name's enumerators are 0 to N - 1.
template <class Name, class T, std::size_t N>
struct By {
  std::array<T, N> values{};  // in the enumerators' order

  constexpr T& operator[](Name n) { return values[static_cast<std::size_t>(n)]; }
  constexpr const T& operator[](Name n) const { return values[static_cast<std::size_t>(n)]; }
  static constexpr std::size_t size() { return N; }
  static constexpr std::array<Name, N> names() { return all_of<Name, N>(); }
  constexpr auto begin() { return values.begin(); }
  constexpr auto end() { return values.end(); }
  constexpr auto begin() const { return values.begin(); }
  constexpr auto end() const { return values.end(); }
  constexpr void fill(const T& value) { values.fill(value); }
  // Whose value equals `value`: the first of them.
  template <class Value>
  constexpr std::optional<Name> find(const Value& value) const {
    static_assert(!std::is_pointer_v<std::decay_t<Value>> || !std::is_pointer_v<T>,
                  "addresses would be compared");
    for (std::size_t i = 0; i < N; ++i)
      if (value == values[i]) return static_cast<Name>(i);
    return std::nullopt;
  }
  friend constexpr bool operator==(const By&, const By&) = default;
};

// The word of an enumerator in files and in answers. REQUIRES of the type: names_of(E) is a By of
// them, beside it.
template <class E>
requires(std::is_enum_v<E>&& requires(E e) { names_of(e); }) constexpr const char* name_of(E e) {
  return names_of(e)[e];
}

}  // namespace ddpsim
