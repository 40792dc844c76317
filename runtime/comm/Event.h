// A counter that threads wait on, of one process or, if it lies in shared memory, of several: first spinning briefly,
// then yielding, then sleeping on a futex (std::atomic::wait has no deadline).
#pragma once
#include <atomic>
#include <cstdint>
#include <string>

namespace cleave {

/// Reasons for waits to end early: another rank failed, or a timeout. Shared by all ranks of a process.
struct WaitLimits {
  std::atomic<bool> failed{false};
  std::atomic<double> seconds{600};
  /// Spinning helps only if every rank has its own processor.
  unsigned spins = 100;
};

enum class WaitResult { Ready, Failed, TimedOut };

/// How often to look at a counter before the thread yields, if so many ranks share this host.
unsigned spinsOf(unsigned ranks);
/// Tells the processor that this thread spins.
inline void pauseProcessor() { __builtin_ia32_pause(); }

class Event {
public:
  uint32_t value() const { return count.load(std::memory_order_acquire); }
  void advance();
  /// Waits until value() != old.
  WaitResult wait(uint32_t old, const WaitLimits &limits);
  /// Sleeps until value() != old or this time (less than a second) has passed; may return earlier.
  void sleep(uint32_t old, long nanoseconds);

private:
  std::atomic<uint32_t> count{0}, sleepers{0};
};

} // namespace cleave
