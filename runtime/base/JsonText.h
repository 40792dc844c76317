// Reads and prints JSON text. Only JsonText.cpp compiles the library's parser and printer, because each file that
// instantiates them compiles for seconds.
#pragma once
#include <nlohmann/json.hpp>
#include <string>

namespace cleave {

/// Deepest nesting of arrays and objects, because printing and copying values recurse.
constexpr int mostJsonDepth = 64;

/// Throws environmentError "NAME: truncated or not the expected JSON: ..." if the text is not JSON or nested too
/// deeply. Json is nlohmann::json or nlohmann::ordered_json.
template <class Json = nlohmann::json> Json parseJson(std::string_view text, const std::string &name);
extern template nlohmann::json parseJson(std::string_view text, const std::string &name);
extern template nlohmann::ordered_json parseJson(std::string_view text, const std::string &name);

/// The value on one line, or with `indent` spaces per level. Bytes that are not UTF-8 become U+FFFD.
std::string jsonText(const nlohmann::json &json, int indent = -1);
std::string jsonText(const nlohmann::ordered_json &json, int indent = -1);
/// On one line, with other characters than those of ASCII, and control characters, as \uXXXX.
std::string asciiJsonText(const nlohmann::ordered_json &json);

} // namespace cleave
