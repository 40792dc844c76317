// A counter that threads wait on: a short spin, then yielding, then sleeping in the kernel. std::atomic::wait has no
// deadline, hence the futex.
#pragma once
#include <atomic>
#include <cstdint>
#include <string>

namespace cleave {

/// Why waits end early: another rank failed, or the time is over. Shared by all ranks of a process.
struct WaitLimits {
  std::atomic<bool> failed{false};
  std::atomic<double> seconds{600};
  /// Spinning only makes sense while every rank has a processor of its own.
  unsigned spins = 100;
};

enum class WaitResult { Ready, Failed, TimedOut };

class Event {
public:
  uint32_t value() const { return count.load(std::memory_order_acquire); }
  void advance();
  /// Until value() != old.
  WaitResult wait(uint32_t old, const WaitLimits &limits);

private:
  std::atomic<uint32_t> count{0}, sleepers{0};
};

} // namespace cleave
