// Names of segments.
#include "partitioner/schedule/Segment.h"

#include <array>

namespace cleave::partitioner {

std::string SegmentId::str() const {
  static constexpr std::array names{"begin",          "weights",         "reduce_weights", "forward", "backward",
                                    "input_gradient", "weight_gradient", "reduce",         "update",  "eval_begin",
                                    "eval",           "eval_reduce",     "finish"};
  std::string name = names[static_cast<size_t>(kind)];
  return chunk ? name + "." + std::to_string(chunk) : name;
}

} // namespace cleave::partitioner
