// A run's last iterations as a trace that ui.perfetto.dev and chrome://tracing show.
#pragma once
#include "runtime/executor/Executor.h"

#include <string>

namespace cleave {

/// Writes Chrome's trace event format (JSON, complete events; times in microseconds), a track a stream. Errors name the
/// file (AtomicFile.h).
void writeTrace(const std::string &file, const std::string &program, unsigned rank,
                const std::vector<TraceEvent> &events);

} // namespace cleave
