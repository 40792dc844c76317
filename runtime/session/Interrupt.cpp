// Interrupts.
#include "runtime/session/Interrupt.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <csignal>
#include <string_view>
#include <unistd.h>

namespace cleave {

static std::atomic<int> interrupts{0};
static_assert(std::atomic<int>::is_always_lock_free);
constexpr std::array signals{SIGINT, SIGTERM, SIGHUP};
static std::array<struct sigaction, signals.size()> previous;

static void end(std::string_view text) {
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, text.data(), text.size());
  _exit(3);
}

static void onInterrupt(int) {
  if (interrupts.fetch_add(1) > 0)
    end("error: interrupted twice: ended at once, nothing more was written\n");
}

void endOnInterrupt() {
  struct sigaction action {};
  action.sa_handler = [](int) { end("error: interrupted\n"); };
  sigemptyset(&action.sa_mask);
  for (int signal : signals) {
    struct sigaction now {};
    if (sigaction(signal, nullptr, &now) == 0 && now.sa_handler == SIG_DFL) // nohup's choice stands
      sigaction(signal, &action, nullptr);
  }
}

InterruptGuard::InterruptGuard() {
  interrupts = 0;
  struct sigaction action {};
  action.sa_handler = onInterrupt;
  sigemptyset(&action.sa_mask);
  action.sa_flags = SA_RESTART;
  for (size_t i = 0; i < signals.size(); ++i)
    sigaction(signals[i], &action, &previous[i]);
}

InterruptGuard::~InterruptGuard() {
  for (size_t i = 0; i < signals.size(); ++i)
    sigaction(signals[i], &previous[i], nullptr);
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
