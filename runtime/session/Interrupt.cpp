// Interrupts.
#include "runtime/session/Interrupt.h"

#include <algorithm>
#include <atomic>
#include <csignal>
#include <unistd.h>

namespace cleave {

static std::atomic<int> interrupts{0};
static_assert(std::atomic<int>::is_always_lock_free);
static struct sigaction previousInt, previousTerm;

static void onInterrupt(int) {
  if (interrupts.fetch_add(1) > 0)
    _exit(3);
}

InterruptGuard::InterruptGuard() {
  interrupts = 0;
  struct sigaction action {};
  action.sa_handler = onInterrupt;
  sigemptyset(&action.sa_mask);
  action.sa_flags = SA_RESTART;
  sigaction(SIGINT, &action, &previousInt);
  sigaction(SIGTERM, &action, &previousTerm);
}

InterruptGuard::~InterruptGuard() {
  sigaction(SIGINT, &previousInt, nullptr);
  sigaction(SIGTERM, &previousTerm, nullptr);
}

bool InterruptGuard::interrupted() { return interrupts.load(std::memory_order_relaxed) > 0; }

bool StopAgreement::mayBegin(int64_t step) {
  std::lock_guard lock(mutex);
  if (last < 0 && InterruptGuard::interrupted())
    last = begun;
  if (last >= 0 && step > last)
    return false;
  begun = std::max(begun, step);
  return true;
}

} // namespace cleave
