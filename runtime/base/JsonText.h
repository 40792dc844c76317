// Parses external JSON with limited nesting, because printing, copying and destroying values recurse.
#pragma once
#include "runtime/base/Error.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <string>

namespace cleave {

/// Deepest nesting of arrays and objects.
constexpr int mostJsonDepth = 64;

/// Throws environmentError "NAME: torn or not the JSON expected: ..." if the text is not JSON or nested too deeply.
template <class Json = nlohmann::json> Json parseJson(std::string_view text, const std::string &name) {
  try {
    return Json::parse(text, [&](int depth, typename Json::parse_event_t, Json &) {
      if (depth > mostJsonDepth)
        throw environmentError(
            fmt::format("{}: JSON must not be nested deeper than {} levels, found {}", name, mostJsonDepth, depth));
      return true;
    });
  } catch (const nlohmann::json::exception &e) {
    throw environmentError(fmt::format("{}: truncated or not the expected JSON: {}", name, e.what()));
  }
}

} // namespace cleave
