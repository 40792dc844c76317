// The times of a schedule: every work begins as early as possible, so a walk over the works gives all times.
#include "partitioner/pipeline/Simulate.h"

#include "partitioner/schedule/Walk.h"
#include "runtime/base/Error.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

namespace cleave::partitioner {
namespace {

/// Computes times while a walk visits works. Each (stage, microbatch) receives one message, or one value on the same
/// rank, in each direction.
class Clock {
public:
  Clock(const Schedule &schedule, const std::vector<StageCosts> &stages)
      : schedule(schedule), stages(stages), arrived(size_t(2 * schedule.stages() * schedule.microbatches)),
        free(size_t(schedule.ranks)), links(size_t(2 * schedule.ranks)), times(size_t(schedule.ranks)) {
    for (int64_t stage = 0; stage < schedule.stages(); ++stage)
      rankOf.push_back(schedule.rankOf(stage));
    for (size_t rank = 0; rank < times.size(); ++rank)
      times[rank].resize(schedule.order[rank].size());
  }

  /// Calls sent(rank, message) for a result that goes to another rank.
  template <class Sent> void visit(size_t rank, size_t position, Sent sent) {
    const ScheduledWork &work = schedule.order[rank][position];
    Span &time = times[rank][position];
    time.begin = free[rank];
    if (work.work != Work::WeightGradient)
      time.begin = std::max(time.begin, arrived[slotOf(work.work, work.stage, work.microbatch)]);
    time.end = free[rank] = time.begin + stages[size_t(work.stage)].of(work.work);
    const int64_t reader = readerOf(work, schedule.stages());
    if (reader < 0)
      return;
    double &arrival = arrived[slotOf(work.work, reader, work.microbatch)];
    arrival = time.end;
    const int64_t receiver = rankOf[size_t(reader)];
    if (receiver == int64_t(rank))
      return;
    // A rank sends to its two neighbours; with two ranks both neighbours are the same rank.
    double &link = links[2 * rank + (receiver != int64_t(rank + 1) % schedule.ranks)];
    const double begin = std::max(time.end, link);
    arrival = link = begin + stages[size_t(work.stage)].message(work.work);
    sent(rank, PipelineMessage{work, receiver, {begin, arrival}});
  }

  std::vector<std::vector<Span>> take() { return std::move(times); }

private:
  size_t slotOf(Work work, int64_t stage, int64_t microbatch) const {
    return size_t(((work == Work::Forward ? 0 : schedule.stages()) + stage) * schedule.microbatches + microbatch);
  }

  const Schedule &schedule;
  const std::vector<StageCosts> &stages;
  std::vector<int64_t> rankOf;
  std::vector<double> arrived, free, links;
  std::vector<std::vector<Span>> times;
};

double bubbleFraction(const std::vector<RankTimeline> &ranks) {
  double span = 0, busy = 0;
  for (const RankTimeline &rank : ranks)
    if (rank.span() > span || (rank.span() == span && rank.busy > busy))
      span = rank.span(), busy = rank.busy;
  return span > 0 ? std::max(0.0, (span - busy) / span) : 0;
}

} // namespace

std::optional<std::vector<std::vector<Span>>> timesOf(const Schedule &schedule, const std::vector<StageCosts> &stages) {
  Clock clock(schedule, stages);
  const std::vector<size_t> visited = walk(schedule, [&](size_t rank, size_t position) {
    clock.visit(rank, position, [](size_t, const PipelineMessage &) {});
  });
  for (size_t rank = 0; rank < visited.size(); ++rank)
    if (visited[rank] < schedule.order[rank].size())
      return std::nullopt;
  return clock.take();
}

double waitsForLinks(const Schedule &schedule, const std::vector<StageCosts> &stages,
                     const std::vector<std::vector<Span>> &times, std::span<const int64_t> nodeOf) {
  struct LinkUse {
    double first = INFINITY, last = 0, load = 0;
  };
  std::map<std::pair<int64_t, bool>, LinkUse> links; // by node, and whether messages enter it
  for (size_t rank = 0; rank < times.size(); ++rank)
    for (size_t i = 0; i < times[rank].size(); ++i) {
      const ScheduledWork &work = schedule.order[rank][i];
      const int64_t reader = readerOf(work, schedule.stages());
      const int64_t from = nodeOf[rank], to = reader < 0 ? from : nodeOf[size_t(schedule.rankOf(reader))];
      if (from == to)
        continue;
      const double seconds = stages[size_t(work.stage)].message(work.work), end = times[rank][i].end;
      for (LinkUse *use : {&links[{from, false}], &links[{to, true}]}) {
        use->first = std::min(use->first, end);
        use->last = std::max(use->last, end + seconds);
        use->load += seconds;
      }
    }
  double wait = 0;
  for (const auto &[link, use] : links)
    wait = std::max(wait, use.load - (use.last - use.first));
  return wait;
}

std::vector<double> peakBytes(const Schedule &schedule, const std::vector<StageCosts> &stages) {
  std::vector<double> peaks;
  for (const auto &order : schedule.order) {
    double held = 0, peak = 0;
    for (const ScheduledWork &work : order) {
      held += bytesTaken(work.work, stages[size_t(work.stage)]);
      peak = std::max(peak, held);
      held -= bytesFreed(work.work, stages[size_t(work.stage)]);
    }
    peaks.push_back(peak);
  }
  return peaks;
}

PipelineTimeline simulate(const Schedule &schedule, const std::vector<StageCosts> &stages) {
  if (const auto defect = check(schedule))
    throw environmentError(*defect);
  PipelineTimeline timeline;
  timeline.ranks.resize(size_t(schedule.ranks));
  Clock clock(schedule, stages);
  walk(schedule, [&](size_t rank, size_t position) {
    clock.visit(rank, position, [&](size_t sender, const PipelineMessage &message) {
      timeline.ranks[sender].messages.push_back(message);
    });
  });
  auto times = clock.take();
  const std::vector<double> peaks = peakBytes(schedule, stages);
  for (size_t rank = 0; rank < times.size(); ++rank) {
    RankTimeline &result = timeline.ranks[rank];
    result.works = std::move(times[rank]);
    result.peakBytes = peaks[rank];
    for (const ScheduledWork &work : schedule.order[rank])
      result.busy += stages[size_t(work.stage)].of(work.work);
    for (const PipelineMessage &message : result.messages)
      result.communication += stages[size_t(message.result.stage)].message(message.result.work);
    timeline.step = std::max(timeline.step, result.works.back().end);
  }
  timeline.bubbleFraction = bubbleFraction(timeline.ranks);
  return timeline;
}

double lowestStep(const Schedule &schedule, const std::vector<StageCosts> &stages) {
  const int64_t last = schedule.stages() - 1;
  // When the first microbatch can reach each stage.
  std::vector<double> reached(stages.size());
  for (int64_t s = 1; s <= last; ++s)
    reached[size_t(s)] = reached[size_t(s - 1)] + stages[size_t(s - 1)].forward +
                         (schedule.rankOf(s) == schedule.rankOf(s - 1) ? 0 : stages[size_t(s - 1)].send);
  double least = reached[size_t(last)] + stages[size_t(last)].forward, back = 0;
  for (int64_t s = last; s >= 0; --s)
    back +=
        stages[size_t(s)].inputGradient +
        (s > 0 && schedule.rankOf(s) != schedule.rankOf(s - 1) ? stages[size_t(s)].message(Work::InputGradient) : 0);
  least += back + stages[0].weightGradient;
  for (int64_t rank = 0; rank < schedule.ranks; ++rank) {
    double work = 0;
    for (int64_t chunk = 0; chunk < schedule.chunks; ++chunk)
      work += stages[size_t(schedule.stageOf(rank, chunk))].work();
    least = std::max(least, reached[size_t(rank)] + work * double(schedule.microbatches));
  }
  return least;
}

} // namespace cleave::partitioner
