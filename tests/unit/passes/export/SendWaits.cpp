// Where ranks wait for their sends: named schedules of any size, and schedules that deadlock.
#include "passes/export/SendWaits.h"
#include "partitioner/schedule/Named.h"
#include "runtime/base/Error.h"

#include <catch2/catch.hpp>

#include <algorithm>
#include <random>
#include <set>

using namespace cleave;
using namespace cleave::partitioner;
using cleave::passes::SendWaits;

namespace {

using Name = std::pair<int64_t, int64_t>; // tag, microbatch

/// A pipeline in which every stage sends one value to the next stage, and one gradient to the previous one.
LocalPrograms appliedOf(const Schedule &schedule) {
  LocalPrograms applied;
  applied.decisions.schedule = schedule.name;
  applied.train = itemsOf(schedule);
  const bool split = schedule.backward == BackwardPass::Split;
  const SegmentKind back = split ? SegmentKind::InputGradient : SegmentKind::Backward;
  for (int64_t rank = 0; rank < schedule.ranks; ++rank) {
    auto &items = applied.train[static_cast<size_t>(rank)];
    items.push_back({{SegmentKind::Reduce}, 0});
    RankClass &one = applied.classes.emplace_back();
    one.position = rank;
    for (const ScheduleItem &item : items)
      one.functions[item.segment] = "f";
  }
  const auto chunkOf = [&](int64_t stage) { return stage / schedule.ranks; };
  for (int64_t stage = 0; stage + 1 < schedule.stages(); ++stage) {
    const int64_t from = schedule.rankOf(stage), to = schedule.rankOf(stage + 1);
    if (from == to)
      continue;
    applied.messages.push_back(
        {2 * stage, from, to, {SegmentKind::Forward, chunkOf(stage)}, {SegmentKind::Forward, chunkOf(stage + 1)}});
    applied.messages.push_back({2 * stage + 1, to, from, {back, chunkOf(stage + 1)}, {back, chunkOf(stage)}});
  }
  return applied;
}

size_t indexOf(const std::vector<ScheduleItem> &items, const ScheduleItem &item) {
  return static_cast<size_t>(std::find(items.begin(), items.end(), item) - items.begin());
}

/// Runs every position's items in order, with the waits. Returns the positions that do not finish.
std::vector<int64_t> stuck(const LocalPrograms &applied, const SendWaits &waits) {
  std::vector<std::vector<std::vector<Name>>> awaited(applied.train.size()); // by position and item
  for (size_t p = 0; p < awaited.size(); ++p)
    awaited[p].resize(applied.train[p].size() + 1);
  for (const LocalPrograms::Message &message : applied.messages)
    for (int64_t m = 0; m < applied.decisions.microbatches; ++m)
      awaited[static_cast<size_t>(message.from)][waits.itemOf(message.from, message.tag, m)].push_back(
          {message.tag, m});
  std::vector<size_t> next(applied.train.size());
  std::set<Name> sent, received;
  for (bool moved = true; moved;) {
    moved = false;
    for (size_t p = 0; p < next.size(); ++p)
      while (next[p] < applied.train[p].size()) {
        const ScheduleItem &item = applied.train[p][next[p]];
        const auto isReceived = [&](const Name &name) { return received.count(name) > 0; };
        const bool runs = std::ranges::all_of(awaited[p][next[p]], isReceived) &&
                          std::ranges::all_of(applied.messages, [&](const LocalPrograms::Message &message) {
                            return message.to != int64_t(p) || message.receiver != item.segment ||
                                   sent.count({message.tag, item.microbatch}) > 0;
                          });
        if (!runs)
          break;
        for (const LocalPrograms::Message &message : applied.messages) {
          if (message.to == int64_t(p) && message.receiver == item.segment)
            received.insert({message.tag, item.microbatch});
          if (message.from == int64_t(p) && message.sender == item.segment)
            sent.insert({message.tag, item.microbatch});
        }
        ++next[p];
        moved = true;
      }
  }
  std::vector<int64_t> found;
  for (size_t p = 0; p < next.size(); ++p)
    if (next[p] < applied.train[p].size())
      found.push_back(int64_t(p));
  return found;
}

} // namespace

TEST_CASE("a message is waited for where its microbatch comes back, or two items of its segment later") {
  const Schedule schedule = namedSchedule("1f1b", 2, 1, 6);
  LocalPrograms applied = appliedOf(schedule);
  applied.decisions.microbatches = 6;
  const SendWaits waits(applied, false);
  for (int64_t m = 0; m < 6; ++m) {
    INFO("microbatch " << m);
    const auto &first = applied.train[0], &second = applied.train[1];
    CHECK(waits.itemOf(0, 0, m) == indexOf(first, {{SegmentKind::Backward}, m}));
    const size_t later = m + 2 < 6 ? indexOf(second, {{SegmentKind::Backward}, m + 2}) : second.size() - 1;
    CHECK(waits.itemOf(1, 1, m) == later);
  }
}

TEST_CASE("named schedules of any size run to their end with the waits") {
  std::mt19937 random(11);
  const auto from = [&](int64_t least, int64_t most) { return least + int64_t(random() % uint64_t(most - least + 1)); };
  for (int round = 0; round < 300; ++round)
    for (const std::string &name : namedSchedules()) {
      const int64_t ranks = from(1, 6), chunks = chunksOf(name) ? chunksOf(name) : from(2, 4);
      const int64_t microbatches = name == "interleaved" ? ranks * from(1, 3) : from(1, 12);
      LocalPrograms applied = appliedOf(namedSchedule(name, ranks, chunks, microbatches));
      applied.decisions.microbatches = microbatches;
      INFO(name << ", ranks " << ranks << ", stages a rank " << chunks << ", microbatches " << microbatches);
      const SendWaits waits(applied, false);
      CHECK(stuck(applied, waits).empty());
      for (const LocalPrograms::Message &message : applied.messages)
        for (int64_t m = 0; m < microbatches; ++m)
          CHECK(waits.itemOf(message.from, message.tag, m) >
                indexOf(applied.train[static_cast<size_t>(message.from)], {message.sender, m}));
    }
}

TEST_CASE("schedules that wait for each other are an internal error that names the item") {
  LocalPrograms applied;
  applied.decisions.schedule = "crossed";
  // Each rank first receives the value that the other rank sends second.
  const SegmentId first{SegmentKind::Forward, 0}, second{SegmentKind::Forward, 1};
  applied.train = {{{first, 0}, {second, 0}}, {{first, 0}, {second, 0}}};
  for (int64_t position : {0, 1}) {
    RankClass &one = applied.classes.emplace_back();
    one.position = position;
    one.functions = {{first, "f"}, {second, "g"}};
    applied.messages.push_back({position, position, 1 - position, second, first});
  }
  try {
    SendWaits waits(applied, false);
    FAIL("no error");
  } catch (const Error &error) {
    CHECK(error.status == Status::Internal);
    CHECK(std::string(error.what())
              .find("schedule \"crossed\": position 0 waits in forward of microbatch 0 for a "
                    "message that is never sent") != std::string::npos);
  }
}
