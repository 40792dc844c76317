// A file in Chrome's trace event format, for ui.perfetto.dev and chrome://tracing. Used for traces of runs
// (runtime/session/Trace.h) and of predictions (partitioner/simulate/Trace.h).
#pragma once
#include "runtime/base/AtomicFile.h"

#include <nlohmann/json.hpp>
#include <string>

namespace cleave {

/// Writes events as they arrive, in blocks of a megabyte. The file appears complete or not at all. Errors name the file
/// (AtomicFile.h).
class TraceFile {
public:
  explicit TraceFile(const std::string &path) : out(path) {}

  /// Adds a top-level member to the file. Call before any event.
  void describe(const std::string &key, const nlohmann::ordered_json &value);
  /// Adds a process for a rank.
  void process(uint32_t rank, const std::string &name);
  /// Adds a track for a stream of a rank: its number in the plan and its purpose.
  void stream(uint32_t rank, uint32_t number, const std::string &name);
  /// Adds a span on a stream's track; times in seconds.
  void span(uint32_t rank, uint32_t stream, const std::string &name, const std::string &category, double begin,
            double seconds, nlohmann::ordered_json arguments);
  void commit();

private:
  void event(const nlohmann::ordered_json &json);
  void put(const std::string &text);
  void flush();

  AtomicFile out;
  std::string buffer = R"({"displayTimeUnit":"ms")";
  bool any = false;
};

} // namespace cleave
