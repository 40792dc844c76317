// Writes a run's last iterations as a trace for ui.perfetto.dev and chrome://tracing.
#pragma once
#include "runtime/executor/Executor.h"

#include <string>

namespace cleave {

/// Writes Chrome's trace event format (JSON, complete events; times in microseconds), one track per stream. Errors name
/// the file (AtomicFile.h).
void writeTrace(const std::string &file, const std::string &program, unsigned rank,
                const std::vector<TraceEvent> &events);

} // namespace cleave
