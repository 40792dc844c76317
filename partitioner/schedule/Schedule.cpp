// Stages on ranks, and schedules as items of a plan.
#include "partitioner/schedule/Schedule.h"

#include "partitioner/schedule/Named.h"
#include "runtime/base/Error.h"

#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>

namespace cleave::partitioner {

std::string shortName(const ScheduledWork &work) {
  return fmt::format("{}{}", "FBBW"[size_t(work.work)], work.microbatch);
}

std::string longName(const ScheduledWork &work) {
  static const char *const names[] = {"forward", "backward pass", "input gradient", "weight gradient"};
  return fmt::format("the {} of stage {}, microbatch {}", names[size_t(work.work)], work.stage, work.microbatch);
}

int64_t Schedule::rankOf(int64_t stage) const {
  const int64_t chunk = stage / ranks, place = stage % ranks;
  return placement == Placement::V && chunk % 2 == 1 ? ranks - 1 - place : place;
}

int64_t Schedule::stageOf(int64_t rank, int64_t chunk) const {
  return chunk * ranks + (placement == Placement::V && chunk % 2 == 1 ? ranks - 1 - rank : rank);
}

const std::vector<std::string> &scheduleNames() { return namedSchedules(); }

std::vector<std::vector<ScheduleItem>> makeSchedule(const std::string &name, int64_t ranks, int64_t chunks,
                                                    int64_t microbatches) {
  static constexpr SegmentKind kinds[] = {SegmentKind::Forward, SegmentKind::Backward, SegmentKind::InputGradient,
                                          SegmentKind::WeightGradient};
  const Schedule schedule = namedSchedule(name, ranks, chunks, microbatches);
  std::vector<std::vector<ScheduleItem>> result;
  for (const auto &order : schedule.order) {
    auto &items = result.emplace_back();
    for (const ScheduledWork &work : order)
      items.push_back({{kinds[static_cast<size_t>(work.work)], work.stage / ranks}, work.microbatch});
  }
  return result;
}

} // namespace cleave::partitioner
