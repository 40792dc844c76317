// An interrupt of any rank ends training after a step that all ranks complete, so that a checkpoint can be written.
// Interrupts are SIGINT (Ctrl-C), SIGTERM, SIGHUP, and the warnings of schedulers: SIGXCPU, SIGUSR1, SIGUSR2.
#pragma once
#include "runtime/comm/Communicator.h"

#include <chrono>
#include <cstdint>
#include <mutex>
#include <optional>

namespace cleave {

/// From now on every signal that would end the process without a message ends it with one that names the signal and, if
/// it is not 0, the rank. The status is 3, or 1 if the program itself caused the signal, as by a wrong address. Other
/// processes of the job are notified. Signals that are ignored (nohup) or have a handler are left alone. Only the first
/// call has an effect.
void endOnSignals(unsigned rank = 0);

/// Gives the calling thread a stack for handlers, so that an overflow of its own stack is reported. For one thread.
void useSignalStack();

/// During the lifetime of this object, interrupts are only recorded; a second one, at least one second later, ends
/// the process immediately with status 3. If `grace` is not 0, so does the end of that many seconds after the first.
/// Ignored signals stay ignored. One within the lifetime of another has no effect.
class InterruptGuard {
public:
  explicit InterruptGuard(double grace = 0);
  ~InterruptGuard();
  InterruptGuard(const InterruptGuard &) = delete;
  static bool interrupted();
  /// Tells that the checkpoint of `step` is complete, for the message at the end of the grace.
  static void saved(int64_t step);
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
