// The times of a schedule: every work begins as early as possible, so a walk over the works gives all times.
#include "partitioner/pipeline/Simulate.h"

#include "partitioner/schedule/Walk.h"
#include "runtime/base/Error.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <queue>
#include <utility>

namespace cleave::partitioner {
namespace {

/// Computes times while a walk visits works. Each (stage, microbatch) receives one message, or one value on the same
/// rank, in each direction.
class Clock {
public:
  Clock(const Schedule &schedule, const std::vector<StageCosts> &stages, const SharedLinks &shared = noSharedLinks)
      : schedule(schedule), stages(stages), shared(shared), sharedFree(shared.count),
        arrived(size_t(2 * schedule.stages() * schedule.microbatches)), free(size_t(schedule.ranks)),
        links(size_t(2 * schedule.ranks)), times(size_t(schedule.ranks)) {
    for (int64_t stage = 0; stage < schedule.stages(); ++stage)
      rankOf.push_back(schedule.rankOf(stage));
    for (size_t rank = 0; rank < times.size(); ++rank)
      times[rank].resize(schedule.order[rank].size());
  }

  /// When a work runs whose rank has done those before it, and which has what it reads.
  Span timeOf(size_t rank, size_t position) const {
    const ScheduledWork &work = schedule.order[rank][position];
    double begin = work.work == Work::Forward ? std::max(free[rank], stages[size_t(work.stage)].ready) : free[rank];
    if (work.work != Work::WeightGradient)
      begin = std::max(begin, arrived[slotOf(work.work, work.stage, work.microbatch)]);
    return {begin, begin + stages[size_t(work.stage)].of(work.work)};
  }

  /// Calls sent(rank, message) for a result that goes to another rank.
  template <class Sent> void visit(size_t rank, size_t position, Sent sent) {
    const ScheduledWork &work = schedule.order[rank][position];
    const Span &time = times[rank][position] = timeOf(rank, position);
    free[rank] = time.end;
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
    const double begin = std::max(time.end, link), seconds = stages[size_t(work.stage)].message(work.work);
    arrival = link = begin + seconds;
    if (const auto found = shared.uses.find({int64_t(rank), receiver}); found != shared.uses.end())
      for (const SharedLinks::Use &use : found->second) {
        double &carried = sharedFree[use.link];
        carried = std::max(carried, time.end) + use.share * seconds;
        arrival = std::max(arrival, carried);
      }
    sent(rank, PipelineMessage{work, receiver, {begin, arrival}});
  }

  std::vector<std::vector<Span>> take() { return std::move(times); }

private:
  size_t slotOf(Work work, int64_t stage, int64_t microbatch) const {
    return size_t(((work == Work::Forward ? 0 : schedule.stages()) + stage) * schedule.microbatches + microbatch);
  }

  const Schedule &schedule;
  const std::vector<StageCosts> &stages;
  const SharedLinks &shared;
  std::vector<int64_t> rankOf;
  std::vector<double> sharedFree, arrived, free, links;
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

/// Visits works in the order in which they end. Returns the number of visited works of each rank.
static std::vector<size_t> visitByTime(const Schedule &schedule, Clock &clock) {
  using Event = std::pair<double, size_t>; // the end of the next work of a rank
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events;
  Progress progress(schedule);
  std::vector<size_t> done(size_t(schedule.ranks));
  std::vector<bool> waits(size_t(schedule.ranks), true);
  const auto wake = [&](size_t rank) {
    if (!waits[rank] || done[rank] == schedule.order[rank].size() || progress.missing(schedule.order[rank][done[rank]]))
      return;
    waits[rank] = false;
    events.emplace(clock.timeOf(rank, done[rank]).end, rank);
  };
  for (size_t rank = 0; rank < done.size(); ++rank)
    wake(rank);
  while (!events.empty()) {
    const size_t rank = events.top().second;
    events.pop();
    const ScheduledWork &work = schedule.order[rank][done[rank]];
    clock.visit(rank, done[rank]++, [](size_t, const PipelineMessage &) {});
    progress.finish(work);
    waits[rank] = true;
    wake(rank);
    if (const int64_t reader = readerOf(work, schedule.stages()); reader >= 0)
      wake(size_t(schedule.rankOf(reader)));
  }
  return done;
}

std::optional<std::vector<std::vector<Span>>> timesOf(const Schedule &schedule, const std::vector<StageCosts> &stages,
                                                      const SharedLinks &shared) {
  Clock clock(schedule, stages, shared);
  const std::vector<size_t> visited =
      !shared.uses.empty() ? visitByTime(schedule, clock) : walk(schedule, [&](size_t rank, size_t position) {
        clock.visit(rank, position, [](size_t, const PipelineMessage &) {});
      });
  for (size_t rank = 0; rank < visited.size(); ++rank)
    if (visited[rank] < schedule.order[rank].size())
      return std::nullopt;
  return clock.take();
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
