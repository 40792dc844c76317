// One entry of a stage's schedule.
#pragma once
#include <cstdint>
#include <string>

namespace cleave::partitioner {

/// A segment ("forward", "input_gradient", ...) and its microbatch (0 if it has none).
struct ScheduleItem {
  std::string segment;
  int64_t microbatch = 0;
  bool operator==(const ScheduleItem &) const = default;
};

} // namespace cleave::partitioner
