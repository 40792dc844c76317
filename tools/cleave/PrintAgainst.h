// Prints the output of cleave simulate --against.
#pragma once
#include "partitioner/simulate/Against.h"

#include <nlohmann/json.hpp>

namespace cleave::tool {

/// {"iterations", "step", "between_ms", "kinds", "stages", "ranks", "steps"}. A time is {"predicted_ms", "measured_ms",
/// "ratio"}; the ratio is null if nothing was predicted.
nlohmann::ordered_json againstJson(const partitioner::Comparison &comparison);
void printAgainst(const partitioner::Comparison &comparison, const std::string &trace);

} // namespace cleave::tool
