// Strings of a plan, which may be absent.
#pragma once
#include <flatbuffers/string.h>

#include <string>
#include <string_view>

namespace cleave {

/// Empty if the string is absent.
inline std::string_view viewOf(const flatbuffers::String *value) {
  return value ? value->string_view() : std::string_view();
}
inline std::string text(const flatbuffers::String *value) { return std::string(viewOf(value)); }

} // namespace cleave
