// Runs the schedules of all positions together, and moves the waits that block them.
#include "passes/export/SendWaits.h"

#include "runtime/base/Error.h"

#include <algorithm>
#include <fmt/format.h>
#include <optional>
#include <set>

namespace cleave::passes {

namespace {

using partitioner::Applied;
using partitioner::ScheduleItem;
using partitioner::SegmentId;
using partitioner::SegmentKind;

bool concludes(SegmentKind kind) {
  return kind == SegmentKind::Reduce || kind == SegmentKind::Update || kind == SegmentKind::EvalReduce;
}

/// Runs the schedules of all positions together, and records how far each position has come.
class Joint {
public:
  using Waits = std::map<std::tuple<int64_t, int64_t, int64_t>, size_t>;

  Joint(const Applied &applied, bool evaluation)
      : name(applied.strategy.schedule), schedules(evaluation ? applied.eval : applied.train), next(schedules.size()),
        present(schedules.size()) {
    for (const partitioner::RankClass &rankClass : applied.classes)
      for (const auto &[segment, function] : rankClass.functions)
        present[static_cast<size_t>(rankClass.position)].insert(segment);
    for (const Applied::Message &message : applied.messages) {
      sent[{message.from, message.sender}].push_back(&message);
      received[{message.to, message.receiver}].push_back(&message);
    }
    findBegins();
    for (size_t position = 0; position < schedules.size(); ++position)
      for (size_t item = 0; item < schedules[position].size(); ++item)
        addUsualWaits(position, item);
  }

  Waits run() {
    while (!done()) {
      bool moved = false;
      for (size_t position = 0; position < schedules.size(); ++position)
        while (next[position] < schedules[position].size() && mayRun(position)) {
          perform(position);
          moved = true;
        }
      if (!moved && !postpone())
        fail();
    }
    return std::move(waits);
  }

private:
  using Place = std::pair<int64_t, SegmentId>;
  using Name = std::pair<int64_t, int64_t>; // tag, microbatch

  const std::string name;
  const std::vector<std::vector<ScheduleItem>> &schedules;
  std::vector<size_t> next;
  std::vector<std::set<SegmentId>> present; // segments with work, by position
  std::map<Place, std::vector<const Applied::Message *>> sent, received;
  std::vector<std::vector<double>> begins; // estimated begin of every item, if no item waits for sent messages
  std::map<Name, double> receipts;         // estimated begin of the items that receive messages
  std::map<std::pair<size_t, size_t>, std::vector<Name>> waitsAt; // by position and item
  Waits waits;
  std::set<Name> started, arrived;

  const std::vector<const Applied::Message *> &
  messagesOf(const std::map<Place, std::vector<const Applied::Message *>> &list, size_t position, size_t item) const {
    static const std::vector<const Applied::Message *> none;
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
    for (const Applied::Message *message : messages)
      setWait(position, {message->tag, schedules[position][item].microbatch},
              back ? *back : waitOf(position, item, *message));
  }

  /// The usual item, unless the receiver reaches the message later; then an item after the receipt.
  size_t waitOf(size_t position, size_t item, const Applied::Message &message) const {
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

  void findBegins() {
    begins.resize(schedules.size());
    std::vector<double> clock(schedules.size());
    std::map<Name, double> sentAt;
    for (bool moved = true; moved;) {
      moved = false;
      for (size_t position = 0; position < schedules.size(); ++position)
        while (begins[position].size() < schedules[position].size()) {
          const size_t item = begins[position].size();
          const ScheduleItem &one = schedules[position][item];
          double begin = clock[position];
          const auto &needed = messagesOf(received, position, item);
          const auto arrives = [&](const Applied::Message *message) {
            const auto found = sentAt.find({message->tag, one.microbatch});
            if (found != sentAt.end())
              begin = std::max(begin, found->second);
            return found != sentAt.end();
          };
          if (!std::all_of(needed.begin(), needed.end(), arrives))
            break;
          begins[position].push_back(begin);
          for (const Applied::Message *message : needed)
            receipts[{message->tag, one.microbatch}] = begin;
          clock[position] = begin + timeOf(position, one);
          for (const Applied::Message *message : messagesOf(sent, position, item))
            sentAt[{message->tag, one.microbatch}] = clock[position];
          moved = true;
        }
    }
  }

  /// How much later than estimated a message may be received without delaying the sender, in forward passes: stages
  /// take different times.
  static constexpr double margin = 4;

  /// The first item after `item` that begins at least `late` after the item that receives the message, or that follows
  /// the microbatches.
  size_t itemAtReceipt(size_t position, size_t item, const Applied::Message &message, double late) const {
    const std::vector<ScheduleItem> &own = schedules[position];
    const auto receipt = receipts.find({message.tag, own[item].microbatch});
    size_t later = item + 1;
    if (receipt != receipts.end())
      while (later < begins[position].size() && !concludes(own[later].segment.kind) &&
             begins[position][later] < receipt->second + late)
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

  bool done() const {
    for (size_t position = 0; position < schedules.size(); ++position)
      if (next[position] < schedules[position].size())
        return false;
    return true;
  }

  const std::vector<Name> &waitsOf(size_t position, size_t item) const {
    static const std::vector<Name> none;
    const auto found = waitsAt.find({position, item});
    return found == waitsAt.end() ? none : found->second;
  }

  /// Whether the next item can run: its messages have been sent, and the messages for which it waits have been
  /// received.
  bool mayRun(size_t position) const {
    const size_t item = next[position];
    for (const Name &message : waitsOf(position, item))
      if (!arrived.count(message))
        return false;
    return allSent(position, item);
  }

  bool allSent(size_t position, size_t item) const {
    const auto &messages = messagesOf(received, position, item);
    return std::all_of(messages.begin(), messages.end(), [&](const Applied::Message *message) {
      return started.count({message->tag, schedules[position][item].microbatch});
    });
  }

  void perform(size_t position) {
    const size_t item = next[position]++;
    const int64_t microbatch = schedules[position][item].microbatch;
    for (const Applied::Message *message : messagesOf(received, position, item))
      arrived.insert({message->tag, microbatch});
    for (const Applied::Message *message : messagesOf(sent, position, item))
      started.insert({message->tag, microbatch});
  }

  /// Moves the unfinished waits of the first position that waits block to its next item.
  bool postpone() {
    for (size_t position = 0; position < schedules.size(); ++position) {
      const size_t item = next[position];
      std::vector<Name> late;
      for (const Name &message : waitsOf(position, item))
        if (!arrived.count(message))
          late.push_back(message);
      if (late.empty())
        continue;
      waitsAt.erase({position, item});
      for (const Name &message : late)
        setWait(position, message, item + 1);
      return true;
    }
    return false;
  }

  [[noreturn]] void fail() const {
    for (size_t position = 0; position < schedules.size(); ++position)
      if (next[position] < schedules[position].size()) {
        const ScheduleItem &item = schedules[position][next[position]];
        throw Error(Status::Internal,
                    fmt::format("schedule \"{}\": position {} waits in {} of microbatch {} for a message that is never "
                                "sent",
                                name, position, item.segment.str(), item.microbatch));
      }
    throw Error(Status::Internal, "schedule: nothing is left to run");
  }
};

} // namespace

SendWaits::SendWaits(const Applied &applied, bool evaluation) : waits(Joint(applied, evaluation).run()) {}

} // namespace cleave::passes
