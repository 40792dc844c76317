// cleave simulate --pipeline: a pipeline schedule alone, without a plan.
#pragma once
#include <string>

namespace cleave::tool {

/// Reads the spec `file` (partitioner/pipeline/Spec.h), prints what its schedule costs, as one JSON object or as a
/// page, and writes the trace file `trace` if it is not empty. Throws an Error; then nothing is printed or written.
void simulatePipeline(const std::string &file, bool json, const std::string &trace);

} // namespace cleave::tool
