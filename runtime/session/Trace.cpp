// Trace Event Format (Google, "Trace Event Format"): ph "X" is a complete event, "M" names a process or a track.
#include "runtime/session/Trace.h"

#include "runtime/base/AtomicFile.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <set>

namespace cleave {

static std::string trackName(uint32_t stream) {
  if (stream == 0)
    return "computes";
  if (stream == 1)
    return "collectives";
  return fmt::format("{} peer {}", stream % 2 == 0 ? "sends to" : "receives from", (stream - 2) / 2);
}

void writeTrace(const std::string &file, const std::string &program, unsigned rank,
                const std::vector<TraceEvent> &events) {
  auto list = nlohmann::ordered_json::array();
  list.push_back({{"name", "process_name"},
                  {"ph", "M"},
                  {"pid", rank},
                  {"args", {{"name", fmt::format("{}, rank {}", program, rank)}}}});
  std::set<uint32_t> streams;
  for (const TraceEvent &event : events)
    if (streams.insert(event.stream).second)
      list.push_back({{"name", "thread_name"},
                      {"ph", "M"},
                      {"pid", rank},
                      {"tid", event.stream},
                      {"args", {{"name", trackName(event.stream)}}}});
  for (const TraceEvent &event : events)
    list.push_back({{"name", event.path.empty() ? event.kind : event.kind + " " + event.path},
                    {"cat", event.segment},
                    {"ph", "X"},
                    {"pid", rank},
                    {"tid", event.stream},
                    {"ts", event.begin * 1e6},
                    {"dur", event.seconds * 1e6},
                    {"args", {{"segment", event.segment}, {"microbatch", event.microbatch}}}});
  const nlohmann::ordered_json trace{{"displayTimeUnit", "ms"}, {"traceEvents", std::move(list)}};
  const std::string text = trace.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  AtomicFile out(file);
  out.write(text.data(), text.size());
  out.commit();
}

} // namespace cleave
