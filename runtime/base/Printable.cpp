// Control characters in texts.
#include "runtime/base/Printable.h"

#include <cstdint>

namespace cleave {

/// The bytes of the control character that begins at `at`; 0 if none does.
static size_t controlBytes(std::string_view text, size_t at, bool lines) {
  const auto c = static_cast<uint8_t>(text[at]);
  if (c == 0xc2 && at + 1 < text.size() && static_cast<uint8_t>(text[at + 1]) - 0x80u < 0x20u)
    return 2;
  return (c < 0x20 && !(lines && (c == '\n' || c == '\t'))) || c == 0x7f ? 1 : 0;
}

std::optional<size_t> controlCharacter(std::string_view text, bool lines) {
  for (size_t at = 0; at < text.size(); ++at)
    if (controlBytes(text, at, lines))
      return at;
  return std::nullopt;
}

std::string printable(std::string_view text, bool lines) {
  std::string shown;
  for (size_t at = 0; at < text.size(); ++at) {
    const size_t control = controlBytes(text, at, lines);
    shown += control ? '?' : text[at];
    at += control == 2;
  }
  return shown;
}

} // namespace cleave
