// A counter that threads wait on: first spinning briefly, then yielding, then sleeping on a futex (std::atomic::wait
// has no deadline).
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

class Event {
public:
  uint32_t value() const { return count.load(std::memory_order_acquire); }
  void advance();
  /// Waits until value() != old.
  WaitResult wait(uint32_t old, const WaitLimits &limits);

private:
  std::atomic<uint32_t> count{0}, sleepers{0};
};

} // namespace cleave
