// Writes the last iterations of a run, all ranks, as a trace for ui.perfetto.dev. `cleave simulate --against` reads it.
#pragma once
#include "runtime/comm/Communicator.h"
#include "runtime/executor/Executor.h"

#include <string>

namespace cleave {

/// Sends all ranks' traces to rank 0, which writes them: a process for each rank, a track for each of its streams, an
/// event for each step. All ranks must call this at the same place; like every wait of `world`, it ends with an error
/// if another rank fails or does not come. Errors name the file (AtomicFile.h).
///
/// The file: {"displayTimeUnit", "run": {"plan": its hash, "model", "ranks", "kind": "train" or "eval", "iterations"},
/// "traceEvents"}. An event's "args": {"segment", "microbatch", "iteration": from 0, "at": [segment, step], as numbers
/// of the plan}. The ranks' clocks are made one: those of one machine are, of others the moment after a barrier is the
/// same.
void writeTrace(const std::string &file, const Executor &executor, World &world);

} // namespace cleave
