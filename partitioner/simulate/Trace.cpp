// Trace Event Format (Google, "Trace Event Format"): ph "X" is a complete event, "M" names a process or a track.
#include "partitioner/simulate/Trace.h"

#include "runtime/base/AtomicFile.h"
#include "runtime/plan/CheckParts.h"
#include "runtime/plan/plan_generated.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <set>

namespace cleave::partitioner {

using check::length;

namespace {

constexpr size_t mostSteps = 200000;

std::string trackName(uint32_t stream) {
  if (stream == 0)
    return "computes";
  if (stream == 1)
    return "collectives";
  return fmt::format("{} peer {}", stream % 2 == 0 ? "sends to" : "receives from", (stream - 2) / 2);
}

class TraceWriter {
public:
  TraceWriter(const std::string &file, const plan::Plan &plan, const Simulation &simulation)
      : plan(plan), simulation(simulation), out(file) {}

  void write() {
    size_t steps = 0;
    for (const auto &spans : simulation.timeline)
      steps += spans.size();
    put(R"({"displayTimeUnit":"ms","traceEvents":[)");
    for (size_t c = 0; c < simulation.timeline.size(); ++c)
      writeClass(c, steps > mostSteps);
    put("]}\n");
    flush();
    out.commit();
  }

private:
  void writeClass(size_t index, bool merged) {
    const RankClass &one = simulation.ranks.classes[index];
    const std::string alike = one.ranks > 1 ? fmt::format(" and {} like it", one.ranks - 1) : "";
    const std::string model = plan.model() ? plan.model()->str() : "";
    event({{"name", "process_name"},
           {"ph", "M"},
           {"pid", one.representative},
           {"args", {{"name", fmt::format("{}, rank {}{}, predicted", model, one.representative, alike)}}}});
    std::set<uint32_t> streams;
    for (const Span &span : simulation.timeline[index])
      if (streams.insert(span.stream).second)
        event({{"name", "thread_name"},
               {"ph", "M"},
               {"pid", one.representative},
               {"tid", span.stream},
               {"args", {{"name", trackName(span.stream)}}}});
    const auto &spans = simulation.timeline[index];
    for (size_t i = 0; i < spans.size();) {
      Span span = spans[i++];
      while (merged && span.stream == 0 && i < spans.size() && spans[i].stream == 0 && spans[i].action == span.action &&
             spans[i].begin <= span.end)
        span.end = spans[i++].end;
      writeSpan(one, span, merged && span.stream == 0);
    }
  }

  void writeSpan(const RankClass &one, const Span &span, bool merged) {
    const plan::Program &program = *plan.programs()->Get(one.program);
    const plan::Action &action = *program.train()->Get(span.action);
    const plan::Segment &segment = *program.segments()->Get(action.segment());
    const std::string name = segment.name() ? segment.name()->str() : "";
    event(
        {{"name", merged ? fmt::format("{} {}", name, action.microbatch()) : nameOf(*segment.steps()->Get(span.step))},
         {"cat", name},
         {"ph", "X"},
         {"pid", one.representative},
         {"tid", span.stream},
         {"ts", span.begin * 1e6},
         {"dur", (span.end - span.begin) * 1e6},
         {"args", {{"segment", name}, {"microbatch", action.microbatch()}}}});
  }

  /// Its kind and module path.
  std::string nameOf(const plan::Step &step) const {
    const std::string kind = plan::EnumNameStepOp(step.op_type());
    const std::string path = step.path() < length(plan.strings()) ? plan.strings()->Get(step.path())->str() : "";
    return path.empty() ? kind : kind + " " + path;
  }

  void event(const nlohmann::ordered_json &json) {
    put((first ? "\n" : ",\n") + json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
    first = false;
  }

  void put(const std::string &text) {
    buffer += text;
    if (buffer.size() > (1 << 20))
      flush();
  }

  void flush() {
    out.write(buffer.data(), buffer.size());
    buffer.clear();
  }

  const plan::Plan &plan;
  const Simulation &simulation;
  AtomicFile out;
  std::string buffer;
  bool first = true;
};

} // namespace

void writeSimulatedTrace(const std::string &file, const plan::Plan &plan, const Simulation &simulation) {
  TraceWriter(file, plan, simulation).write();
}

} // namespace cleave::partitioner
