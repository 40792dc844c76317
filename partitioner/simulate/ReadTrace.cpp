// Reads events one by one, so that only the needed events are kept in memory.
#include "partitioner/simulate/ReadTrace.h"

#include "runtime/base/Error.h"
#include "runtime/base/JsonText.h"
#include "runtime/plan/check/Defects.h"
#include "runtime/plan/plan_generated.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <optional>
#include <tuple>

namespace cleave::partitioner {

using check::length;
using Json = nlohmann::json;

namespace {

class Reader {
public:
  Reader(const std::string &file, const plan::Plan &plan, const std::string &planHash)
      : file(file), plan(plan), planHash(planHash) {
    run.ranks.resize(length(plan.ranks()));
  }

  MeasuredRun read(const std::string &text) {
    parse(text);
    requireRun();
    for (auto &steps : run.ranks)
      std::sort(steps.begin(), steps.end(), [](const MeasuredStep &a, const MeasuredStep &b) {
        return std::tie(a.iteration, a.begin) < std::tie(b.iteration, b.begin);
      });
    requireAll();
    return std::move(run);
  }

private:
  [[noreturn]] void fail(const std::string &what) const { throw userError(file + ": " + what); }

  void requireRun() const {
    if (run.iterations == 0)
      fail("no trace of a run: --trace of cleave-run, or of a program's train, writes one");
  }

  /// Reads the description of the run, which comes first, and every event; does not keep the JSON of events.
  void parse(const std::string &text) {
    try {
      (void)Json::parse(text, [this](int depth, Json::parse_event_t event, Json &value) {
        if (depth > mostJsonDepth)
          fail(fmt::format("JSON must not be nested deeper than {} levels", mostJsonDepth));
        if (depth == 1 && event == Json::parse_event_t::key)
          member = value;
        if (event != Json::parse_event_t::object_end)
          return true;
        if (depth == 1 && member == "run")
          readRun(value);
        if (depth != 2 || member != "traceEvents")
          return true;
        readEvent(value);
        return false;
      });
    } catch (const Json::exception &error) {
      fail(fmt::format("torn, or no JSON: {}", error.what()));
    }
  }

  static std::optional<int64_t> whole(const Json &object, const char *key) {
    const auto found = object.find(key);
    if (found == object.end() || !found->is_number_integer() ||
        (found->is_number_unsigned() && found->get<uint64_t>() > INT64_MAX))
      return std::nullopt;
    return found->get<int64_t>();
  }

  void readRun(const Json &about) {
    const auto text = [&](const char *key) {
      const auto found = about.find(key);
      return found != about.end() && found->is_string() ? found->get<std::string>() : "";
    };
    if (const std::string hash = text("plan"); hash != planHash)
      fail(fmt::format("a trace of another plan: its hash is {}, that of the plan {}; cleave-run PLAN --trace and "
                       "PROGRAM train --plan PLAN --trace run this one",
                       hash.substr(0, 12), planHash.substr(0, 12)));
    if (text("kind") != "train")
      fail("the trace of an evaluation; one of training iterations is needed");
    const auto iterations = whole(about, "iterations");
    if (!iterations || *iterations < 1 || *iterations > 1'000'000)
      fail("the trace has no training iteration");
    run.iterations = static_cast<uint32_t>(*iterations);
  }

  void readEvent(const Json &event) {
    const auto phase = event.find("ph");
    if (phase == event.end() || *phase != "X")
      return;
    requireRun();
    const auto rank = whole(event, "pid");
    if (!rank || *rank < 0 || *rank >= static_cast<int64_t>(run.ranks.size()))
      fail(fmt::format("event {} is of no rank of the plan, which has {}", events, run.ranks.size()));
    const auto arguments = event.find("args");
    if (arguments == event.end() || !arguments->is_object())
      fail(fmt::format("event {} has no args", events));
    const auto microbatch = whole(*arguments, "microbatch"), iteration = whole(*arguments, "iteration");
    const auto at = arguments->find("at");
    if (!microbatch || *microbatch < INT32_MIN || *microbatch > INT32_MAX || !iteration || *iteration < 0 ||
        *iteration > UINT32_MAX || at == arguments->end() || !at->is_array() || at->size() != 2 ||
        !(*at)[0].is_number_unsigned() || !(*at)[1].is_number_unsigned())
      fail(fmt::format("event {} does not say which step of which iteration it is", events));
    const uint64_t segment = (*at)[0].get<uint64_t>(), step = (*at)[1].get<uint64_t>();
    const plan::Program &program = programOf(static_cast<uint32_t>(*rank));
    if (segment >= length(program.segments()) ||
        step >= length(program.segments()->Get(static_cast<uint32_t>(segment))->steps()))
      fail(fmt::format("event {} is step {} of segment {}, which rank {} of the plan does not have", events, step,
                       segment, *rank));
    run.ranks[static_cast<size_t>(*rank)].push_back(
        {static_cast<uint32_t>(segment), static_cast<uint32_t>(step), static_cast<int32_t>(*microbatch),
         static_cast<uint32_t>(*iteration), seconds(event, "ts"), seconds(event, "dur")});
    ++events;
  }

  /// The seconds in a field of microseconds; at most a year.
  double seconds(const Json &event, const char *key) const {
    const auto found = event.find(key);
    const double value = found != event.end() && found->is_number() ? found->get<double>() : -1;
    if (!std::isfinite(value) || value < 0 || value > 3.2e13)
      fail(fmt::format("event {}: {} must be a number of microseconds, at least 0", events, key));
    return value * 1e-6;
  }

  const plan::Program &programOf(uint32_t rank) const {
    return *plan.programs()->Get(plan.ranks()->Get(rank)->program());
  }

  /// The number of runs of each step in an iteration, by segment.
  static std::vector<std::vector<uint64_t>> countsOf(const plan::Program &program) {
    std::vector<std::vector<uint64_t>> counts;
    for (uint32_t s = 0; s < length(program.segments()); ++s)
      counts.emplace_back(length(program.segments()->Get(s)->steps()), 0);
    for (uint32_t a = 0; a < length(program.train()); ++a)
      for (uint64_t &count : counts[program.train()->Get(a)->segment()])
        ++count;
    return counts;
  }

  void requireAll() const {
    for (uint32_t rank = 0; rank < run.ranks.size(); ++rank) {
      const auto wanted = countsOf(programOf(rank));
      const auto &steps = run.ranks[rank];
      uint64_t perIteration = 0;
      for (const auto &segment : wanted)
        for (const uint64_t count : segment)
          perIteration += count;
      if (steps.empty() && perIteration > 0)
        fail(fmt::format("the trace lacks rank {}; it must have all {}", rank, run.ranks.size()));
      if (steps.size() != perIteration * run.iterations)
        fail(fmt::format("the trace is not complete: rank {} has {} events, {} iterations of {} steps have {}", rank,
                         steps.size(), run.iterations, perIteration, perIteration * run.iterations));
      requireEach(rank, wanted);
    }
  }

  /// Requires each step as often as it runs in an iteration. The total number of events is already known to be right.
  void requireEach(uint32_t rank, const std::vector<std::vector<uint64_t>> &wanted) const {
    auto left = wanted;
    uint32_t iteration = 0;
    for (const MeasuredStep &one : run.ranks[rank]) {
      if (one.iteration != iteration) {
        left = wanted;
        iteration = one.iteration;
      }
      if (iteration >= run.iterations || left[one.segment][one.step]-- == 0)
        fail(fmt::format(
            "the trace is not that of the plan: rank {} has step {} of segment {} too often in iteration {}", rank,
            one.step, one.segment, iteration));
    }
  }

  const std::string &file;
  const plan::Plan &plan;
  const std::string &planHash;
  MeasuredRun run;
  uint64_t events = 0;
  std::string member; ///< member of the top-level object that is being read
};

} // namespace

MeasuredRun readTrace(const std::string &text, const std::string &file, const plan::Plan &plan,
                      const std::string &planHash) {
  return Reader(file, plan, planHash).read(text);
}

} // namespace cleave::partitioner
