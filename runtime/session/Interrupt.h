// An interrupt (Ctrl-C, SIGTERM) of any rank ends training after a step that all ranks finish, so that a checkpoint can
// be written.
#pragma once
#include "runtime/comm/Communicator.h"

#include <chrono>
#include <cstdint>
#include <mutex>
#include <optional>

namespace cleave {

/// From here on SIGINT, SIGTERM and SIGHUP end the process with status 3 and a message that names the signal and, where
/// it is not 0, the rank; other processes of the job are told. A signal that is ignored stays so.
void endOnInterrupt(unsigned rank = 0);

/// While one lives, those signals are only noted; another one, a second later or more, ends the process at once with
/// status 3.
class InterruptGuard {
public:
  InterruptGuard();
  ~InterruptGuard();
  InterruptGuard(const InterruptGuard &) = delete;
  static bool interrupted();
};

/// The step after which all ranks stop, agreed on once. Ranks that are threads of one process: the furthest any has
/// begun. Ranks that are processes ask each other now and then, every quarter of a second or so, and stop where one of
/// them has been interrupted.
class StopAgreement {
public:
  /// The ranks are processes, and this process is a member of all of them. The communicator must outlive this.
  void among(Communicator &all) { others = &all; }
  /// Whether this rank may begin `step`. All ranks ask for the same steps, in order, and get the same answers. Errors:
  /// those of the communicator.
  bool mayBegin(int64_t step);
  /// The last step of all ranks; none where nobody was interrupted.
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
