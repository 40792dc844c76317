// What cleave simulate --against prints.
#pragma once
#include "partitioner/simulate/Against.h"

#include <nlohmann/json.hpp>

namespace cleave::tool {

/// {"iterations", "step_ms", "between_ms", "kinds", "stages", "ranks", "steps"}; a time: {"predicted_ms",
/// "measured_ms", "ratio"}, whose ratio is null where nothing was predicted.
nlohmann::ordered_json againstJson(const partitioner::Comparison &comparison);
void printAgainst(const partitioner::Comparison &comparison, const std::string &trace);

} // namespace cleave::tool
