// Writes the last iterations of a run, all ranks, as a trace for ui.perfetto.dev. `cleave simulate --against` reads it.
#pragma once
#include "runtime/comm/Communicator.h"
#include "runtime/executor/Executor.h"

#include <string>

namespace cleave {

/// Sends all ranks' traces to rank 0, which writes them: a process for each rank, a track for each of its streams, an
/// event for each step. All ranks must call this at the same point. The wait ends with an error if another rank fails
/// or does not call it. Errors name the file (AtomicFile.h).
///
/// The file: {"displayTimeUnit", "run": {"plan": its hash, "model", "ranks", "kind": "train" or "eval", "iterations"},
/// "traceEvents"}. An event's "args": {"segment", "microbatch", "iteration": from 0, "at": [segment, step], as numbers
/// of the plan}. All times refer to one clock: ranks on one machine share a clock, and clocks of different machines are
/// aligned at the end of a barrier.
void writeTrace(const std::string &file, const Executor &executor, RankEndpoint &world);

} // namespace cleave
