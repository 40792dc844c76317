// Writes spans of a simulation as events.
#include "partitioner/simulate/Trace.h"

#include "runtime/base/TraceFile.h"
#include "runtime/plan/Streams.h"
#include "runtime/plan/check/Defects.h"
#include "runtime/plan/plan_generated.h"

#include <fmt/format.h>
#include <set>

namespace cleave::partitioner {

using check::length;

namespace {

constexpr size_t mostSteps = 200000;

class TraceWriter {
public:
  TraceWriter(const std::string &file, const plan::Plan &plan, const Simulation &simulation)
      : plan(plan), simulation(simulation), out(file) {}

  void write() {
    size_t steps = 0;
    for (const auto &spans : simulation.timeline)
      steps += spans.size();
    for (size_t c = 0; c < simulation.timeline.size(); ++c)
      writeClass(c, steps > mostSteps);
    out.commit();
  }

private:
  void writeClass(size_t index, bool merged) {
    const AlikeRanks &one = simulation.ranks.classes[index];
    const std::string alike = one.ranks > 1 ? fmt::format(" and {} like it", one.ranks - 1) : "";
    const std::string model = plan.model() ? plan.model()->str() : "";
    out.process(one.representative, fmt::format("{}, rank {}{}, predicted", model, one.representative, alike));
    std::set<uint32_t> streams;
    for (const StepSpan &span : simulation.timeline[index])
      if (streams.insert(span.stream).second)
        out.stream(one.representative, span.stream, streamName(plan, one.program, span.stream));
    const auto &spans = simulation.timeline[index];
    for (size_t i = 0; i < spans.size();) {
      StepSpan span = spans[i++];
      while (merged && span.stream == 0 && i < spans.size() && spans[i].stream == 0 && spans[i].action == span.action &&
             spans[i].begin <= span.end)
        span.end = spans[i++].end;
      writeSpan(one, span, merged && span.stream == 0);
    }
  }

  void writeSpan(const AlikeRanks &one, const StepSpan &span, bool merged) {
    const plan::Program &program = *plan.programs()->Get(one.program);
    const plan::Action &action = *program.train()->Get(span.action);
    const plan::Segment &segment = *program.segments()->Get(action.segment());
    const std::string name = segment.name() ? segment.name()->str() : "";
    out.span(one.representative, span.stream,
             merged ? fmt::format("{} {}", name, action.microbatch())
                    : stepName(plan, *segment.steps()->Get(span.step)),
             name, span.begin, span.end - span.begin, {{"segment", name}, {"microbatch", action.microbatch()}});
  }

  const plan::Plan &plan;
  const Simulation &simulation;
  TraceFile out;
};

} // namespace

std::string stepName(const plan::Plan &plan, const plan::Step &step) {
  const std::string kind = plan::EnumNameStepOp(step.op_type());
  const std::string path = step.path() < length(plan.strings()) ? plan.strings()->Get(step.path())->str() : "";
  return path.empty() ? kind : kind + " " + path;
}

void writeSimulatedTrace(const std::string &file, const plan::Plan &plan, const Simulation &simulation) {
  TraceWriter(file, plan, simulation).write();
}

} // namespace cleave::partitioner
