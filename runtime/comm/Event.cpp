// Waits with a deadline.
#include "runtime/comm/Event.h"

#include <chrono>
#include <ctime>
#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <thread>
#include <unistd.h>

namespace cleave {

static constexpr int yields = 40;
static constexpr long sliceNanoseconds = 20'000'000; // interval at which a sleeping thread checks for failures

unsigned spinsOf(unsigned ranks) { return ranks <= std::thread::hardware_concurrency() ? 2000 : 20; }

void Event::advance() {
  count.fetch_add(1, std::memory_order_seq_cst);
  if (sleepers.load(std::memory_order_seq_cst))
    ::syscall(SYS_futex, reinterpret_cast<uint32_t *>(&count), FUTEX_WAKE, INT32_MAX, nullptr, nullptr, 0);
}

void Event::sleep(uint32_t old, long nanoseconds) {
  sleepers.fetch_add(1, std::memory_order_seq_cst);
  const timespec slice{0, nanoseconds};
  if (count.load(std::memory_order_seq_cst) == old)
    ::syscall(SYS_futex, reinterpret_cast<uint32_t *>(&count), FUTEX_WAIT, old, &slice, nullptr, 0);
  sleepers.fetch_sub(1, std::memory_order_seq_cst);
}

WaitResult Event::wait(uint32_t old, const WaitLimits &limits) {
  for (unsigned i = 0; i < limits.spins; ++i) {
    if (value() != old)
      return WaitResult::Ready;
    pauseProcessor();
  }
  for (int i = 0; i < yields; ++i) {
    if (value() != old)
      return WaitResult::Ready;
    ::sched_yield();
  }
  auto deadline = std::chrono::steady_clock::now() + std::chrono::duration<double>(limits.seconds.load());
  while (value() == old) {
    if (limits.failed.load(std::memory_order_acquire))
      return WaitResult::Failed;
    if (std::chrono::steady_clock::now() > deadline)
      return WaitResult::TimedOut;
    sleep(old, sliceNanoseconds);
  }
  return WaitResult::Ready;
}

} // namespace cleave
