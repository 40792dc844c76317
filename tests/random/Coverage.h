// The features that a case covers, as words, and the list of all features, so that the table shows those never covered.
#pragma once
#include "tests/random/Run.h"

namespace cleave::random_models {

/// Words such as "op:relu layer:Linear mesh:tp=2", each once.
std::string coveredBy(const Recipe &recipe, const Result &result);
/// Adds a count of 0 for each feature of the tables that was not counted.
std::map<std::string, uint64_t> completed(std::map<std::string, uint64_t> counts);

} // namespace cleave::random_models
