// An interrupt (Ctrl-C, SIGTERM) ends training after a step that all ranks finish, so that a checkpoint can be written.
#pragma once
#include <cstdint>
#include <mutex>

namespace cleave {

/// From here on SIGINT, SIGTERM and SIGHUP end the process with a message and status 3. A signal that is ignored stays
/// so.
void endOnInterrupt();

/// While one lives, those signals are only noted; a second one ends the process at once with status 3.
class InterruptGuard {
public:
  InterruptGuard();
  ~InterruptGuard();
  InterruptGuard(const InterruptGuard &) = delete;
  static bool interrupted();
};

/// The step after which ranks that are threads of one process stop, agreed on once: the furthest any has begun.
class StopAgreement {
public:
  /// Whether this rank may begin `step`. All ranks get the same answer for the same step.
  bool mayBegin(int64_t step);
  bool stopped() const { return last >= 0; }

private:
  std::mutex mutex;
  int64_t begun = 0, last = -1;
};

} // namespace cleave
