// The parser and the printer of JSON text.
#include "runtime/base/JsonText.h"
#include "runtime/base/Error.h"

#include <fmt/format.h>

namespace cleave {

template <class Json> Json parseJson(std::string_view text, const std::string &name) {
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

template nlohmann::json parseJson(std::string_view text, const std::string &name);
template nlohmann::ordered_json parseJson(std::string_view text, const std::string &name);

std::string jsonText(const nlohmann::json &json, int indent) {
  return json.dump(indent, ' ', false, nlohmann::json::error_handler_t::replace);
}
std::string jsonText(const nlohmann::ordered_json &json, int indent) {
  return json.dump(indent, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}
std::string asciiJsonText(const nlohmann::ordered_json &json) {
  return json.dump(-1, ' ', true, nlohmann::ordered_json::error_handler_t::replace);
}

} // namespace cleave
