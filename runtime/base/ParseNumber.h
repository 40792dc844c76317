// Reads a number that a user wrote.
#pragma once
#include <charconv>
#include <cmath>
#include <optional>
#include <string_view>
#include <type_traits>

namespace cleave {

/// The number that the whole text is; nullopt if it is none, if it is not finite, or if T cannot hold it: 1e-400 is not
/// 0.
template <typename T> std::optional<T> parseNumber(std::string_view text) {
  if constexpr (std::is_floating_point_v<T>)
    if (text.starts_with('+') && !text.starts_with("+-"))
      text.remove_prefix(1);
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size())
    return std::nullopt;
  if constexpr (std::is_floating_point_v<T>)
    if (!std::isfinite(value))
      return std::nullopt;
  return value;
}

} // namespace cleave
