// Trace Event Format (Google, "Trace Event Format"): ph "X" is a complete event, "M" names a process or a track; times
// are microseconds.
#include "runtime/base/TraceFile.h"
#include "runtime/base/JsonText.h"

#include <fmt/format.h>

namespace cleave {

void TraceFile::describe(const std::string &key, const nlohmann::ordered_json &value) {
  put(fmt::format(",{}:{}", jsonText(nlohmann::json(key)), jsonText(value)));
}

void TraceFile::process(uint32_t rank, const std::string &name) {
  event({{"name", "process_name"}, {"ph", "M"}, {"pid", rank}, {"args", {{"name", name}}}});
}

void TraceFile::stream(uint32_t rank, uint32_t number, const std::string &name) {
  event({{"name", "thread_name"}, {"ph", "M"}, {"pid", rank}, {"tid", number}, {"args", {{"name", name}}}});
}

void TraceFile::span(uint32_t rank, uint32_t stream, const std::string &name, const std::string &category, double begin,
                     double seconds, nlohmann::ordered_json arguments) {
  event({{"name", name},
         {"cat", category},
         {"ph", "X"},
         {"pid", rank},
         {"tid", stream},
         {"ts", begin * 1e6},
         {"dur", seconds * 1e6},
         {"args", std::move(arguments)}});
}

void TraceFile::event(const nlohmann::ordered_json &json) {
  put((any ? ",\n" : ",\"traceEvents\":[\n") + jsonText(json));
  any = true;
}

void TraceFile::put(const std::string &text) {
  buffer += text;
  if (buffer.size() > (1 << 20))
    flush();
}

void TraceFile::flush() {
  out.write(buffer.data(), buffer.size());
  buffer.clear();
}

void TraceFile::commit() {
  put(any ? "]}\n" : ",\"traceEvents\":[]}\n");
  flush();
  out.commit();
}

} // namespace cleave
