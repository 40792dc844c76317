// Text from other processes and from files, made safe to print: a terminal obeys control characters.
#pragma once
#include <optional>
#include <string>
#include <string_view>

namespace cleave {

/// The first control character: of ASCII, or U+0080 to U+009F in UTF-8. `lines`: line breaks and tabs are allowed.
std::optional<size_t> controlCharacter(std::string_view text, bool lines);

/// The text with "?" in place of every control character.
std::string printable(std::string_view text, bool lines);

} // namespace cleave
