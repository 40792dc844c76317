// The values of a program's own options as text.
#pragma once
#include "cleave/OwnOption.h"

#include <optional>
#include <string>

namespace cleave {

/// The shortest text that reads back as this value: "0.1", "true", "512,512".
std::string textOf(const OptionValue &value);

/// "a whole number from 1 to 8": what the values of the option must be.
std::string ruleOf(const OwnOption &option);
/// Whether the option may have this value, which has its type.
bool allows(const OwnOption &option, const OptionValue &value);
/// The value that a text is; nullopt: none that the option may have.
std::optional<OptionValue> valueOf(const OwnOption &option, const std::string &text);
/// Why `text` is no value of the option: "must be a whole number from 1 to 8"; empty if it is one.
std::string problemOf(const OwnOption &option, const std::string &text);

/// How the help shows the type of the values: "N", "X", "true|false", "TEXT", "N,N,...", or the choices.
std::string typeOf(const OwnOption &option);

} // namespace cleave
