// The timelines of `cleave report`: for each class of ranks its streams with their events, and the memory of its
// actions.
#include "partitioner/simulate/LiveBytes.h"
#include "partitioner/simulate/Trace.h"
#include "runtime/plan/Segments.h"
#include "runtime/plan/Streams.h"
#include "runtime/plan/Text.h"
#include "runtime/plan/check/Defects.h"
#include "runtime/plan/plan_generated.h"
#include "tools/cleave/ReportData.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <map>
#include <span>

namespace cleave::tool {

using namespace partitioner;
using Json = nlohmann::ordered_json;

namespace {

constexpr size_t mostMemoryPoints = 800; ///< of one class
constexpr size_t mostPasses = 40000;     ///< events of all classes, if each is a pass

/// The kinds by which the page colours events, in the order of its legend.
enum EventKind : int { ForwardPass, BackwardPass, WeightPass, UpdatePass, CollectiveEvent, MessageEvent, OtherPass };

EventKind kindOf(const plan::Segment &segment, const plan::Step &step) {
  if (step.op_as_Collective())
    return CollectiveEvent;
  if (step.op_as_Send() || step.op_as_Recv())
    return MessageEvent;
  switch (segment.kind()) {
  case plan::SegmentKind::Forward:
    return ForwardPass;
  case plan::SegmentKind::Backward:
  case plan::SegmentKind::InputGradient:
    return BackwardPass;
  case plan::SegmentKind::WeightGradient:
    return WeightPass;
  case plan::SegmentKind::Reduce:
  case plan::SegmentKind::Update:
    return UpdatePass;
  default:
    return OtherPass;
  }
}

class TimelineWriter {
public:
  TimelineWriter(const ReportInput &input, size_t mostEvents) : input(input), plan(input.plan) {
    size_t steps = 0;
    for (const auto &spans : input.simulation.timeline)
      steps += spans.size();
    merged = steps > mostEvents;
    // So that times are numbers of few digits, and a step of an iteration is told apart from the next.
    tick = std::max(1e-9, input.simulation.stepSeconds / 1e7);
  }

  Json write() {
    Json classes = Json::array();
    for (size_t c = 0; c < input.simulation.timeline.size(); ++c)
      if (written <= mostPasses)
        classes.push_back({{"streams", streamsOf(c)}, {"memory", memoryOf(c)}});
      else
        classes.push_back({{"streams", Json::array()}, {"memory", Json::array()}});
    return {{"tick_ms", tick * 1e3},
            {"merged", merged},
            {"classes", std::move(classes)},
            {"passes", std::move(passes)},
            {"names", std::move(names)}}; // [what, segment, source line, kind]
  }

private:
  const plan::Program &programOf(size_t c) const {
    return *plan.programs()->Get(input.simulation.ranks.classes[c].program);
  }

  int64_t ticks(double seconds) const { return std::llround(seconds / tick); }

  static double secondsOf(std::span<const StepSpan> steps) { return steps.back().end - steps.front().begin; }

  /// Events are [name, microbatch, time since the end before it, duration], and if there are several steps: their
  /// number, the time in them, and the index of an example in `passes`.
  Json streamsOf(size_t c) {
    std::map<uint32_t, std::vector<StepSpan>> streams;
    for (const StepSpan &span : input.simulation.timeline[c])
      streams[span.stream].push_back(span);
    Json all = Json::array();
    for (const auto &[number, spans] : streams) {
      Json events = Json::array();
      std::map<uint32_t, std::pair<size_t, std::span<const StepSpan>>> examples; // by segment, in `passes`
      int64_t at = 0;
      for (size_t i = 0, next; i < spans.size(); i = next) {
        for (next = i + 1; next < spans.size() && merged && spans[next].action == spans[i].action;)
          ++next;
        const auto steps = std::span<const StepSpan>(spans).subspan(i, next - i);
        events.push_back(eventOf(c, steps, at));
        if (steps.size() < 2)
          continue;
        const uint32_t segment = programOf(c).train()->Get(steps.front().action)->segment();
        const auto [found, added] = examples.try_emplace(segment, passes.size(), steps);
        if (added)
          passes.push_back(nullptr);
        events.back().push_back(found->second.first);
        if (secondsOf(steps) < secondsOf(found->second.second)) // waits least
          found->second.second = steps;
      }
      for (const auto &[segment, example] : examples)
        passes[example.first] = stepsOf(c, example.second);
      written += events.size();
      all.push_back({{"name", streamName(input.plan, input.simulation.ranks.classes[c].program, number)},
                     {"events", std::move(events)}});
    }
    return all;
  }

  /// `at`: the end of the event before it; set to its end.
  Json eventOf(size_t c, std::span<const StepSpan> steps, int64_t &at) {
    const plan::Program &program = programOf(c);
    const plan::Action &action = *program.train()->Get(steps.front().action);
    double end = 0, busy = 0;
    for (const StepSpan &step : steps)
      end = std::max(end, step.end), busy += step.end - step.begin;
    const int64_t from = ticks(steps.front().begin), to = std::max(from, ticks(end));
    const bool one = perMicrobatch(program.segments()->Get(action.segment())->kind());
    Json event{nameOf(c, steps.front(), steps.size() > 1), one ? action.microbatch() : -1, from - at, to - from};
    if (steps.size() > 1)
      event.push_back(steps.size()), event.push_back(ticks(busy));
    at = to;
    return event;
  }

  /// The steps of a pass: [name, time since the end before it, duration].
  Json stepsOf(size_t c, std::span<const StepSpan> steps) {
    Json all = Json::array();
    int64_t at = ticks(steps.front().begin);
    for (const StepSpan &step : steps) {
      const int64_t from = ticks(step.begin), to = std::max(from, ticks(step.end));
      all.push_back({nameOf(c, step, false), from - at, to - from});
      at = to;
    }
    return all;
  }

  /// Index of the event's name in `names`.
  size_t nameOf(size_t c, const StepSpan &span, bool several) {
    const plan::Program &program = programOf(c);
    const plan::Segment &segment = *program.segments()->Get(program.train()->Get(span.action)->segment());
    const plan::Step &step = *segment.steps()->Get(span.step);
    const int kind = kindOf(segment, step);
    const std::string what = !several                  ? stepName(plan, step)
                             : kind == CollectiveEvent ? "collectives"
                             : kind == MessageEvent    ? "messages"
                                                       : text(segment.name());
    const uint32_t place = several ? 0 : step.location();
    const std::string where =
        place < check::length(plan.strings()) && !several ? text(plan.strings()->Get(place)) : std::string();
    std::string pass = text(segment.name());
    if (check::length(plan.stages()) > 1 && segment.stage() >= 0)
      pass += fmt::format(", stage {}", segment.stage());
    Json name{what, std::move(pass), where, kind};
    const auto [found, added] = numbers.try_emplace({what, name[1], where, kind}, names.size());
    if (added)
      names.push_back(std::move(name));
    return found->second;
  }

  /// [time, kept, running] at the begin of each action; with many actions the largest of neighbours.
  Json memoryOf(size_t c) const {
    const plan::Program &program = programOf(c);
    const std::vector<LiveBytes> live = liveBytes(program);
    std::vector<double> begins(live.size(), INFINITY);
    for (const StepSpan &span : input.simulation.timeline[c])
      if (span.stream == 0)
        begins[span.action] = std::min(begins[span.action], span.begin);
    const size_t fold = live.size() / mostMemoryPoints + 1;
    Json points = Json::array();
    double time = 0;
    for (size_t a = 0; a < live.size(); a += fold) {
      size_t most = a;
      for (size_t b = a; b < std::min(a + fold, live.size()); ++b)
        if (live[b].kept + live[b].running > live[most].kept + live[most].running)
          most = b;
      if (std::isfinite(begins[a]))
        time = std::max(time, begins[a]);
      points.push_back({ticks(time), live[most].kept, live[most].running});
    }
    return points;
  }

  const ReportInput &input;
  const plan::Plan &plan;
  bool merged = false;
  double tick = 0;
  Json names = Json::array(), passes = Json::array();
  size_t written = 0; ///< events
  std::map<std::tuple<std::string, std::string, std::string, int>, size_t> numbers;
};

} // namespace

Json reportTimeline(const ReportInput &input, size_t mostEvents) { return TimelineWriter(input, mostEvents).write(); }

} // namespace cleave::tool
