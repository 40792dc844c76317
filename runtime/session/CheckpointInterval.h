// When training writes checkpoints within an epoch: after every so many steps, or when some time has passed.
#pragma once
#include "runtime/comm/Communicator.h"

#include <array>
#include <chrono>
#include <cstdint>
#include <string>

namespace cleave {

/// At most one of both is positive; neither: checkpoints are written only after epochs and at the end.
struct CheckpointInterval {
  int64_t steps = 0;
  double seconds = 0;

  /// Reads --checkpoint-every: "500" (steps), "90s", "30m", "1.5h"; "" is none. Throws userError that names the value.
  static CheckpointInterval parse(const std::string &text);
  bool isSet() const { return steps > 0 || seconds > 0; }
};

/// Tells all ranks after the same steps that a checkpoint is due. For an interval of time rank 0's clock decides: it
/// tells the others whether one is due, and after which step they ask again. They ask about once a second.
class CheckpointTimer {
public:
  /// Collective over all ranks, during set-up.
  CheckpointTimer(const CheckpointInterval &interval, RankEndpoint &world);
  /// Collective over all ranks: call after every step, and write a checkpoint if the result is true. Throws the
  /// communicator's errors.
  bool due(int64_t step);
  /// Call when a checkpoint has been written, or could not be: the interval starts again.
  void restart() { begun = Clock::now(); }

private:
  using Clock = std::chrono::steady_clock;
  /// On rank 0: whether a checkpoint is due, and the step after which to ask again.
  std::array<int64_t, 2> decide(int64_t step);

  CheckpointInterval interval;
  Communicator *all = nullptr;  ///< all ranks, if there are several and a clock decides
  bool decides;                 ///< this is rank 0
  int64_t asked = -1, next = 0; ///< steps
  Clock::time_point begun = Clock::now(), askedAt;
};

} // namespace cleave
