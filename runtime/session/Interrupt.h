// An interrupt (Ctrl-C, SIGTERM) of any rank ends training after a step that all ranks complete, so that a checkpoint
// can be written.
#pragma once
#include "runtime/comm/Communicator.h"

#include <chrono>
#include <cstdint>
#include <mutex>
#include <optional>

namespace cleave {

/// From now on SIGINT, SIGTERM and SIGHUP end the process with status 3 and a message that names the signal and, if it
/// is not 0, the rank. Other processes of the job are notified. Ignored signals stay ignored.
void endOnInterrupt(unsigned rank = 0);

/// During the lifetime of this object, those signals are only recorded; a second one, at least one second later, ends
/// the process immediately with status 3.
class InterruptGuard {
public:
  InterruptGuard();
  ~InterruptGuard();
  InterruptGuard(const InterruptGuard &) = delete;
  static bool interrupted();
};

/// Agrees once on the step after which all ranks stop. Ranks that are threads stop after the furthest step that any
/// rank has begun. Ranks that are processes communicate about every quarter of a second, and stop if any was
/// interrupted.
class StopAgreement {
public:
  /// Call if ranks are processes; all of them are members of the communicator, which must outlive this object.
  void among(Communicator &all) { others = &all; }
  /// Whether this rank may begin `step`. All ranks must ask for the same steps, in order, and get the same answers.
  /// Throws the communicator's errors.
  bool mayBegin(int64_t step);
  /// Call on all ranks when they have done something that takes much longer than a step, such as writing a checkpoint:
  /// they ask each other before the next step, however many steps they meant to take before.
  void askSoon();
  /// The last step of all ranks; nullopt if no rank was interrupted.
  std::optional<int64_t> stoppedAfter() const { return last >= 0 ? std::optional(last) : std::nullopt; }

private:
  using Clock = std::chrono::steady_clock;
  void ask(int64_t step);

  std::mutex mutex;
  int64_t begun = 0, last = -1;
  Communicator *others = nullptr;
  int64_t asked = 0, next = 0; ///< steps
  Clock::time_point askedAt;
};

} // namespace cleave
