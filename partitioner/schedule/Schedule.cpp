// The schedules GPipe and 1F1B.
#include "partitioner/schedule/Schedule.h"

#include "runtime/base/Error.h"

#include <algorithm>
#include <fmt/format.h>

namespace cleave::partitioner {

const std::vector<std::string> &scheduleNames() {
  static const std::vector<std::string> names{"gpipe", "1f1b"};
  return names;
}

static void backward(std::vector<ScheduleItem> &items, int64_t microbatch) {
  items.push_back({{SegmentKind::InputGradient}, microbatch});
  items.push_back({{SegmentKind::WeightGradient}, microbatch});
}

static std::vector<ScheduleItem> gpipe(int64_t microbatches) {
  std::vector<ScheduleItem> items;
  for (int64_t m = 0; m < microbatches; ++m)
    items.push_back({{SegmentKind::Forward}, m});
  for (int64_t m = microbatches; m-- > 0;)
    backward(items, m);
  return items;
}

static std::vector<ScheduleItem> oneForwardOneBackward(int64_t stage, int64_t stages, int64_t microbatches) {
  std::vector<ScheduleItem> items;
  int64_t warmUp = std::min(stages - stage - 1, microbatches);
  for (int64_t m = 0; m < warmUp; ++m)
    items.push_back({{SegmentKind::Forward}, m});
  for (int64_t m = 0; m < microbatches; ++m) {
    if (m + warmUp < microbatches)
      items.push_back({{SegmentKind::Forward}, m + warmUp});
    backward(items, m);
  }
  return items;
}

std::vector<std::vector<ScheduleItem>> makeSchedule(const std::string &name, int64_t stages, int64_t microbatches) {
  const auto &names = scheduleNames();
  if (std::find(names.begin(), names.end(), name) == names.end())
    throw userError(fmt::format("schedule \"{}\" is unknown; there are {}", name, fmt::join(names, ", ")));
  std::vector<std::vector<ScheduleItem>> result;
  for (int64_t stage = 0; stage < stages; ++stage)
    result.push_back(name == "gpipe" ? gpipe(microbatches) : oneForwardOneBackward(stage, stages, microbatches));
  return result;
}

} // namespace cleave::partitioner
