// Runs the schedules of all positions together, and moves the waits that block them.
#include "passes/export/SendWaits.h"

#include "runtime/base/Error.h"
#include "runtime/base/RankWalk.h"

#include <algorithm>
#include <fmt/format.h>
#include <optional>
#include <set>

namespace cleave::passes {

namespace {

using partitioner::LocalPrograms;
using partitioner::ScheduleItem;
using partitioner::SegmentId;
using partitioner::SegmentKind;

bool concludes(SegmentKind kind) {
  return kind == SegmentKind::Reduce || kind == SegmentKind::Update || kind == SegmentKind::EvalReduce;
}

using Name = std::pair<int64_t, int64_t>; // tag, microbatch

/// The schedules of all positions, run together, with estimated times. A message is sent when its sender's item ends,
/// and received when its receiver's item begins.
struct Run {
  explicit Run(size_t positions) : walk(positions), begins(positions), clock(positions) {}

  RankWalk walk;
  std::vector<std::vector<double>> begins; // of every item that has run
  std::vector<double> clock;               // the end of each position's last item
  std::map<Name, double> sent, received;
};

/// Runs the schedules without waits, which tells when messages are received; then with the waits, which it moves where
/// they block.
class LockstepRun {
public:
  using Waits = std::map<std::tuple<int64_t, int64_t, int64_t>, size_t>;

  LockstepRun(const LocalPrograms &applied, bool evaluation)
      : name(applied.decisions.schedule), schedules(evaluation ? applied.eval : applied.train),
        present(schedules.size()), estimate(schedules.size()) {
    for (const partitioner::RankClass &rankClass : applied.classes)
      for (const auto &[segment, function] : rankClass.functions)
        present[static_cast<size_t>(rankClass.position)].insert(segment);
    for (const LocalPrograms::Message &message : applied.messages) {
      sent[{message.from, message.sender}].push_back(&message);
      received[{message.to, message.receiver}].push_back(&message);
    }
    advance(estimate);
    for (size_t position = 0; position < schedules.size(); ++position)
      for (size_t item = 0; item < schedules[position].size(); ++item)
        addUsualWaits(position, item);
  }

  Waits run() {
    Run run(schedules.size());
    for (advance(run); const std::optional<size_t> position = unfinished(run); advance(run))
      if (!postpone(run))
        fail(*position, run.walk.done(*position));
    return std::move(waits);
  }

private:
  using Place = std::pair<int64_t, SegmentId>;

  const std::string name;
  const std::vector<std::vector<ScheduleItem>> &schedules;
  std::vector<std::set<SegmentId>> present; // segments with work, by position
  std::map<Place, std::vector<const LocalPrograms::Message *>> sent, received;
  Run estimate;                                                   // if no item waits for sent messages
  std::map<std::pair<size_t, size_t>, std::vector<Name>> waitsAt; // by position and item
  Waits waits;

  const std::vector<const LocalPrograms::Message *> &
  messagesOf(const std::map<Place, std::vector<const LocalPrograms::Message *>> &list, size_t position,
             size_t item) const {
    static const std::vector<const LocalPrograms::Message *> none;
    const auto found = list.find({static_cast<int64_t>(position), schedules[position][item].segment});
    return found == list.end() ? none : found->second;
  }

  void setWait(size_t position, const Name &message, size_t item) {
    waits[{static_cast<int64_t>(position), message.first, message.second}] = item;
    if (item < schedules[position].size())
      waitsAt[{position, item}].push_back(message);
  }

  void addUsualWaits(size_t position, size_t item) {
    const auto &messages = messagesOf(sent, position, item);
    if (messages.empty())
      return;
    const std::optional<size_t> back = itemOfReturn(position, item);
    for (const LocalPrograms::Message *message : messages)
      setWait(position, {message->tag, schedules[position][item].microbatch},
              back ? *back : waitOf(position, item, *message));
  }

  /// The usual item, unless the receiver reaches the message later; then an item after the receipt.
  size_t waitOf(size_t position, size_t item, const LocalPrograms::Message &message) const {
    const size_t usual = usualWait(position, item);
    return itemAtReceipt(position, item, message, 0) <= usual ? usual : itemAtReceipt(position, item, message, margin);
  }

  /// Estimated time of an item: nothing without work and for weights of the loss, two for a joined backward pass, one
  /// for any other item.
  double timeOf(size_t position, const ScheduleItem &item) const {
    const SegmentKind kind = item.segment.kind;
    if (!present[position].count(item.segment) || kind == SegmentKind::Weights || kind == SegmentKind::ReduceWeights)
      return 0;
    return item.segment.kind == SegmentKind::Backward ? 2 : 1;
  }

  /// Runs items until every position has ended or waits: for a message to be sent, or for one of its own to be
  /// received.
  void advance(Run &run) const {
    run.walk.run([&](size_t position, size_t item) {
      if (item == schedules[position].size())
        return false;
      const ScheduleItem &one = schedules[position][item];
      double begin = run.clock[position];
      const auto follows = [&](const std::map<Name, double> &times, const Name &message) {
        const auto found = times.find(message);
        if (found != times.end())
          begin = std::max(begin, found->second);
        return found != times.end();
      };
      for (const Name &message : waitsOf(position, item))
        if (!follows(run.received, message))
          return false;
      for (const LocalPrograms::Message *message : messagesOf(received, position, item))
        if (!follows(run.sent, {message->tag, one.microbatch}))
          return false;
      run.begins[position].push_back(begin);
      for (const LocalPrograms::Message *message : messagesOf(received, position, item)) {
        run.received[{message->tag, one.microbatch}] = begin;
        run.walk.wake(static_cast<size_t>(message->from));
      }
      run.clock[position] = begin + timeOf(position, one);
      for (const LocalPrograms::Message *message : messagesOf(sent, position, item)) {
        run.sent[{message->tag, one.microbatch}] = run.clock[position];
        run.walk.wake(static_cast<size_t>(message->to));
      }
      return true;
    });
  }

  /// The first position that has not ended.
  std::optional<size_t> unfinished(const Run &run) const {
    for (size_t position = 0; position < schedules.size(); ++position)
      if (run.walk.done(position) < schedules[position].size())
        return position;
    return std::nullopt;
  }

  /// How much later than estimated a message may be received without delaying the sender, in forward passes: stages
  /// take different times.
  static constexpr double margin = 4;

  /// The first item after `item` that begins at least `late` after the item that receives the message, or that follows
  /// the microbatches.
  size_t itemAtReceipt(size_t position, size_t item, const LocalPrograms::Message &message, double late) const {
    const std::vector<ScheduleItem> &own = schedules[position];
    const std::vector<double> &begins = estimate.begins[position];
    const auto receipt = estimate.received.find({message.tag, own[item].microbatch});
    size_t later = item + 1;
    if (receipt != estimate.received.end())
      while (later < begins.size() && !concludes(own[later].segment.kind) && begins[later] < receipt->second + late)
        ++later;
    return later;
  }

  /// The item in which the microbatch of a forward pass returns to its stage: by then its message has been received.
  std::optional<size_t> itemOfReturn(size_t position, size_t item) const {
    const std::vector<ScheduleItem> &items = schedules[position];
    const SegmentId id = items[item].segment;
    if (id.kind == SegmentKind::Forward)
      for (SegmentKind back : {SegmentKind::Backward, SegmentKind::InputGradient, SegmentKind::WeightGradient})
        if (present[position].count({back, id.chunk}))
          return static_cast<size_t>(
              std::find(items.begin(), items.end(), ScheduleItem{{back, id.chunk}, items[item].microbatch}) -
              items.begin());
    return std::nullopt;
  }

  size_t usualWait(size_t position, size_t item) const {
    const std::vector<ScheduleItem> &items = schedules[position];
    const SegmentId id = items[item].segment;
    int seen = 0;
    for (size_t i = item + 1; i < items.size(); ++i)
      if (present[position].count(items[i].segment) &&
          ((items[i].segment == id && ++seen == 2) || concludes(items[i].segment.kind)))
        return i;
    return items.size();
  }

  const std::vector<Name> &waitsOf(size_t position, size_t item) const {
    static const std::vector<Name> none;
    const auto found = waitsAt.find({position, item});
    return found == waitsAt.end() ? none : found->second;
  }

  /// Moves the unfinished waits of the first position that waits block to its next item.
  bool postpone(Run &run) {
    for (size_t position = 0; position < schedules.size(); ++position) {
      const size_t item = run.walk.done(position);
      std::vector<Name> late;
      for (const Name &message : waitsOf(position, item))
        if (!run.received.count(message))
          late.push_back(message);
      if (late.empty())
        continue;
      waitsAt.erase({position, item});
      for (const Name &message : late)
        setWait(position, message, item + 1);
      run.walk.wake(position);
      return true;
    }
    return false;
  }

  [[noreturn]] void fail(size_t position, size_t next) const {
    const ScheduleItem &item = schedules[position][next];
    throw Error(Status::Internal, fmt::format("schedule \"{}\": position {} waits in {} of microbatch {} for a message "
                                              "that is never sent",
                                              name, position, item.segment.str(), item.microbatch));
  }
};

} // namespace

SendWaits::SendWaits(const LocalPrograms &applied, bool evaluation) : waits(LockstepRun(applied, evaluation).run()) {}

} // namespace cleave::passes
