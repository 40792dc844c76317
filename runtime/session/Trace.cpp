// Gathers and writes a run's trace.
#include "runtime/session/Trace.h"

#include "runtime/base/Error.h"
#include "runtime/base/TraceFile.h"
#include "runtime/executor/Resolved.h"
#include "runtime/plan/Streams.h"
#include "runtime/plan/Text.h"
#include "runtime/plan/plan_generated.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <fmt/format.h>
#include <fstream>
#include <set>

namespace cleave {

namespace {

using Clock = std::chrono::steady_clock;

double secondsOf(Clock::time_point time) { return std::chrono::duration<double>(time.time_since_epoch()).count(); }

/// The beginning of a rank's message, which its events follow.
struct Header {
  std::array<char, 40> machine; ///< boot id: processes of one machine share a clock
  double origin, met;           ///< seconds of that clock: origin of the events' times, and end of a barrier
  uint64_t events;
  uint32_t iterations, training; ///< training: 0 or 1
};
static_assert(sizeof(Header) == 40 + 3 * 8 + 2 * 4 && sizeof(TraceEvent) == 4 * 4 + 2 * 8, "padding would be sent");

std::array<char, 40> thisMachine() {
  std::array<char, 40> name{};
  std::ifstream("/proc/sys/kernel/random/boot_id").read(name.data(), name.size() - 1);
  return name;
}

std::vector<uint8_t> pack(const RankTrace &trace, Clock::time_point met) {
  Header header{};
  header.machine = thisMachine();
  header.origin = secondsOf(trace.origin);
  header.met = secondsOf(met);
  header.events = trace.events.size();
  header.iterations = trace.iterations;
  header.training = trace.training;
  const size_t bytes = trace.events.size() * sizeof(TraceEvent);
  std::vector<uint8_t> packed(sizeof header + bytes);
  std::memcpy(packed.data(), &header, sizeof header);
  if (bytes)
    std::memcpy(packed.data() + sizeof header, trace.events.data(), bytes);
  return packed;
}

struct Received {
  Header header;
  std::vector<TraceEvent> events;
  double shift = 0; ///< added to the times of the events
};

Received traceFrom(const std::vector<uint8_t> &packed) {
  Received one;
  if (packed.size() < sizeof one.header)
    throw environmentError("a rank's trace is too short");
  std::memcpy(&one.header, packed.data(), sizeof one.header);
  if (one.header.events != (packed.size() - sizeof one.header) / sizeof(TraceEvent))
    throw environmentError("a rank's trace is of another length than it says");
  one.events.resize(one.header.events);
  if (!one.events.empty())
    std::memcpy(one.events.data(), packed.data() + sizeof one.header, one.events.size() * sizeof(TraceEvent));
  return one;
}

/// Converts the times of all ranks to rank 0's clock, starting at the first event.
void align(std::vector<Received> &ranks) {
  double first = INFINITY;
  for (Received &rank : ranks) {
    rank.shift = rank.header.origin;
    if (rank.header.machine != ranks[0].header.machine)
      rank.shift += ranks[0].header.met - rank.header.met;
    for (const TraceEvent &event : rank.events)
      first = std::min(first, event.begin + rank.shift);
  }
  for (Received &rank : ranks)
    rank.shift -= std::isfinite(first) ? first : rank.shift;
}

void writeRank(TraceFile &out, const plan::Plan &plan, const std::string &model, uint32_t rank, const Received &trace) {
  const plan::Program &program = *plan.programs()->Get(plan.ranks()->Get(rank)->program());
  out.process(rank, fmt::format("{}, rank {}", model, rank));
  std::set<uint32_t> streams;
  for (const TraceEvent &event : trace.events) {
    const plan::Segment &segment = *program.segments()->Get(event.segment);
    const plan::Step &step = *segment.steps()->Get(event.step);
    if (streams.insert(step.stream()).second)
      out.stream(rank, step.stream(), streamName(plan, plan.ranks()->Get(rank)->program(), step.stream()));
    const std::string kind = plan::EnumNameStepOp(step.op_type()), path = pathOf(plan, step),
                      name = text(segment.name());
    out.span(rank, step.stream(), path.empty() ? kind : kind + " " + path, name,
             std::max(0.0, event.begin + trace.shift), event.seconds,
             {{"segment", name},
              {"microbatch", event.microbatch},
              {"iteration", event.iteration},
              {"at", {event.segment, event.step}}});
  }
}

} // namespace

void writeTrace(const std::string &file, const Executor &executor, RankEndpoint &world) {
  world.barrier();
  const Clock::time_point met = Clock::now();
  const auto gathered = world.gather(pack(executor.trace(), met));
  if (world.rank() != 0)
    return;
  std::vector<Received> ranks;
  for (const auto &packed : gathered)
    ranks.push_back(traceFrom(packed));
  align(ranks);
  const std::string model = executor.plan.model() ? executor.plan.model()->str() : "model";
  TraceFile out(file);
  out.describe("run", {{"plan", executor.file->hash()},
                       {"model", model},
                       {"ranks", ranks.size()},
                       {"kind", ranks[0].header.training ? "train" : "eval"},
                       {"iterations", ranks[0].header.iterations}});
  for (uint32_t rank = 0; rank < ranks.size(); ++rank)
    writeRank(out, executor.plan, model, rank, ranks[rank]);
  out.commit();
}

} // namespace cleave
