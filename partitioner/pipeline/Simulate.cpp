// The times of a schedule: every work begins as early as possible, so a walk over the works gives all times.
#include "partitioner/pipeline/Simulate.h"

#include "partitioner/schedule/Walk.h"
#include "runtime/base/Error.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <limits>
#include <utility>

namespace cleave::partitioner {

void SharedLinks::add(std::pair<int64_t, int64_t> ends, Flow::Use use) {
  const auto [flow, added] = flowOf.try_emplace(ends, uint32_t(flows.size()));
  if (added)
    flows.emplace_back();
  flows[flow->second].uses.push_back(use);
  count = std::max(count, use.link + 1);
}

namespace {

/// What a work sends to its reader: each stage and microbatch reads one message in each direction.
size_t messageOf(const Schedule &schedule, Work work, int64_t reader, int64_t microbatch) {
  return size_t(((work == Work::Forward ? 0 : schedule.stages()) + reader) * schedule.microbatches + microbatch);
}

/// Messages of a schedule that share links: one after the other from a rank to the same other rank.
class SharedMessages {
public:
  SharedMessages(const Schedule &schedule, const SharedLinks &shared)
      : shared(shared), traffic(shared.flows, shared.count, nullptr), lines(size_t(schedule.ranks)),
        messages(size_t(2 * schedule.stages() * schedule.microbatches)) {
    if (!shared.oneAhead)
      return;
    for (const auto &order : schedule.order) {
      std::map<int64_t, size_t> before; // by sender
      for (const ScheduledWork &work : order)
        if (const int64_t sender = otherRank(schedule, work, sourceOf(work, schedule.stages())); sender >= 0) {
          const size_t message = messageOf(schedule, work.work, work.stage, work.microbatch);
          if (const auto [last, first] = before.try_emplace(sender, message); !first) {
            messages[std::exchange(last->second, message)].next = message;
            messages[message].awaited = unknown;
          }
        }
      std::map<int64_t, std::pair<size_t, size_t>> sent; // by stage, the last two gradients
      for (const ScheduledWork &work : order)
        if (work.work != Work::Forward && otherRank(schedule, work, readerOf(work, schedule.stages())) >= 0) {
          const auto own = sent.try_emplace(work.stage, none, none).first;
          auto &[second, last] = own->second;
          messages[messageOf(schedule, work.work, work.stage, work.microbatch)].place = second;
          second = std::exchange(last, messageOf(schedule, work.work, work.stage - 1, work.microbatch));
        }
    }
  }

  /// The message that must have arrived before a work begins, because its result takes the same place.
  std::optional<size_t> inPlaceOf(size_t number) const {
    const size_t place = messages[number].place;
    return place == none ? std::nullopt : std::optional(place);
  }

  /// A message is ready; false if it does not share links.
  bool send(int64_t sender, int64_t receiver, size_t number, double ready, double seconds, double &arrival) {
    const auto flow = shared.flowOf.find({sender, receiver});
    if (flow == shared.flowOf.end())
      return false;
    arrival = unknown;
    Message &message = messages[number];
    Line &line = lines[size_t(sender)][receiver];
    message.flow = flow->second, message.sender = sender, message.receiver = receiver;
    message.ready = ready, message.seconds = seconds, message.arrival = &arrival, message.line = &line;
    line.waiting.push_back(number);
    tryNext(line);
    return true;
  }

  /// A rank begins to work with a message.
  void read(size_t number, double time) {
    if (const size_t next = messages[number].next; next != none) {
      messages[next].awaited = time;
      if (messages[next].line)
        tryNext(*messages[next].line);
    }
  }

  /// Lets the next message arrive and wakes the ranks at its ends; false if none is on its way.
  bool arrive(RankWalk &ranks) {
    std::optional<Traffic::Ended> ended = traffic.next();
    for (auto &from : lines) // if messages are sent in another order than they are read
      for (auto line = from.begin(); !ended && line != from.end(); ++line)
        if (!line->second.waiting.empty()) {
          messages[line->second.waiting.front()].awaited = 0;
          tryNext(line->second);
          ended = traffic.next();
        }
    if (!ended)
      return false;
    const Message &message = messages[moving[ended->transfer]];
    *message.arrival = message.line->free = now = ended->time;
    message.line->moves = false;
    tryNext(*message.line);
    ranks.wake(size_t(message.sender)), ranks.wake(size_t(message.receiver));
    return true;
  }

  /// The arrival of what is on its way.
  static constexpr double unknown = std::numeric_limits<double>::infinity();

private:
  static constexpr size_t none = SIZE_MAX;
  struct Line {
    std::deque<size_t> waiting; ///< messages
    bool moves = false;
    double free = 0;
  };
  struct Message {
    uint32_t flow = 0;
    int64_t sender = 0, receiver = 0;
    double ready = 0, awaited = 0, seconds = 0; ///< awaited: from when on the receiver has a place for it
    double *arrival = nullptr;
    Line *line = nullptr;
    size_t next = none;  ///< that the receiver reads after it from the same rank
    size_t place = none; ///< see inPlaceOf, of the work that reads the message
  };

  /// The rank of a stage (-1: none) with which a work exchanges a message; -1 if it is the work's own.
  static int64_t otherRank(const Schedule &schedule, const ScheduledWork &work, int64_t stage) {
    const int64_t rank = stage < 0 ? -1 : schedule.rankOf(stage);
    return rank == schedule.rankOf(work.stage) ? -1 : rank;
  }

  void tryNext(Line &line) {
    if (line.moves || line.waiting.empty() || messages[line.waiting.front()].awaited == unknown)
      return;
    const size_t number = line.waiting.front();
    const Message &message = messages[number];
    const double begin = std::max({line.free, message.ready, message.awaited, now});
    moving.resize(traffic.add(message.flow, begin, message.seconds) + 1, number);
    line.moves = true;
    line.waiting.pop_front();
  }

  const SharedLinks &shared;
  Traffic traffic;
  std::vector<std::map<int64_t, Line>> lines; ///< by sender and receiver
  std::vector<Message> messages;              ///< see messageOf
  std::vector<size_t> moving;                 ///< messages, by transfer
  double now = 0;                             ///< the last arrival
};

/// Computes times while a walk visits works.
class Clock {
public:
  /// `shared`: null, or the messages that share links. A receiver waits for those that are on their way.
  Clock(const Schedule &schedule, const std::vector<StageCosts> &stages, SharedMessages *shared = nullptr)
      : schedule(schedule), stages(stages), shared(shared),
        arrived(size_t(2 * schedule.stages() * schedule.microbatches)), free(size_t(schedule.ranks)),
        links(size_t(2 * schedule.ranks)), times(size_t(schedule.ranks)) {
    for (int64_t stage = 0; stage < schedule.stages(); ++stage)
      rankOf.push_back(schedule.rankOf(stage));
    for (size_t rank = 0; rank < times.size(); ++rank)
      times[rank].resize(schedule.order[rank].size());
  }

  /// Whether a message for which a work waits is on its way.
  bool waits(const ScheduledWork &work) const {
    return work.work != Work::WeightGradient && arrivalFor(work) == SharedMessages::unknown;
  }

  /// When a work runs whose rank has done those before it, and which has what it reads.
  Span timeOf(size_t rank, size_t position) const {
    const ScheduledWork &work = schedule.order[rank][position];
    double begin = work.work == Work::Forward ? std::max(free[rank], stages[size_t(work.stage)].ready) : free[rank];
    if (work.work != Work::WeightGradient)
      begin = std::max(begin, arrivalFor(work));
    return {begin, begin + stages[size_t(work.stage)].of(work.work)};
  }

  /// Calls sent(rank, message) for a result that goes to another rank.
  template <class Sent> void visit(size_t rank, size_t position, Sent sent) {
    const ScheduledWork &work = schedule.order[rank][position];
    const Span &time = times[rank][position] = timeOf(rank, position);
    free[rank] = time.end;
    if (shared && work.work != Work::WeightGradient)
      shared->read(messageOf(schedule, work.work, work.stage, work.microbatch), time.begin);
    const int64_t reader = readerOf(work, schedule.stages());
    if (reader < 0)
      return;
    const size_t message = messageOf(schedule, work.work, reader, work.microbatch);
    double &arrival = arrived[message];
    arrival = time.end;
    const int64_t receiver = rankOf[size_t(reader)];
    if (receiver == int64_t(rank))
      return;
    const double seconds = stages[size_t(work.stage)].message(work.work);
    if (shared && shared->send(int64_t(rank), receiver, message, time.end, seconds, arrival))
      return;
    // A rank sends to its two neighbours; with two ranks both neighbours are the same rank.
    double &link = links[2 * rank + (receiver != int64_t(rank + 1) % schedule.ranks)];
    const double begin = std::max(time.end, link);
    arrival = link = begin + seconds;
    sent(rank, PipelineMessage{work, receiver, {begin, arrival}});
  }

  std::vector<std::vector<Span>> take() { return std::move(times); }

private:
  double arrivalFor(const ScheduledWork &work) const {
    const size_t read = messageOf(schedule, work.work, work.stage, work.microbatch);
    const auto place = shared ? shared->inPlaceOf(read) : std::nullopt;
    return std::max(arrived[read], place ? arrived[*place] : 0);
  }

  const Schedule &schedule;
  const std::vector<StageCosts> &stages;
  SharedMessages *const shared;
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

std::optional<std::vector<std::vector<Span>>> timesOf(const Schedule &schedule, const std::vector<StageCosts> &stages,
                                                      const SharedLinks &shared) {
  std::optional<SharedMessages> messages;
  if (!shared.flows.empty())
    messages.emplace(schedule, shared);
  Clock clock(schedule, stages, messages ? &*messages : nullptr);
  const std::vector<size_t> visited = walk(
      schedule,
      [&](size_t rank, size_t position) { clock.visit(rank, position, [](size_t, const PipelineMessage &) {}); },
      [&](const ScheduledWork &work) { return !messages || !clock.waits(work); },
      [&](RankWalk &ranks) { return messages && messages->arrive(ranks); });
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
