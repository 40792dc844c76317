// Handles interrupts.
#include "runtime/session/Interrupt.h"
#include "runtime/comm/socket/PeerWatch.h"
#include "runtime/plan/plan_generated.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <csignal>
#include <ctime>
#include <fmt/format.h>
#include <string_view>
#include <unistd.h>

namespace cleave {

static std::atomic<int> interrupts{0};
static std::atomic<int64_t> firstAt{0};
constexpr int64_t oneInterrupt = 1000; ///< milliseconds; a launcher also forwards the terminal's signal
static_assert(std::atomic<int>::is_always_lock_free && std::atomic<int64_t>::is_always_lock_free);
constexpr std::array signals{SIGINT, SIGTERM, SIGHUP};
static std::array<struct sigaction, signals.size()> previous;

static std::array<char, 32> beginning{"error: "}; // start of the message; set before the handler is installed

/// Ends the process from a signal handler.
static void end(int signal, std::string_view text) {
  const char *name = signal == SIGINT ? "SIGINT" : signal == SIGTERM ? "SIGTERM" : "SIGHUP";
  PeerWatch::endedBy(name);
  std::array<char, 256> line{};
  size_t length = 0;
  const std::array<std::string_view, 4> parts{beginning.data(), text, name, "\n"};
  for (const std::string_view part : parts)
    for (const char c : part)
      line[length++] = c;
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, line.data(), length);
  _exit(3);
}

static int64_t milliseconds() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t(now.tv_sec) * 1000 + now.tv_nsec / 1000000;
}

static void onInterrupt(int signal) {
  if (interrupts.fetch_add(1) == 0)
    firstAt = milliseconds();
  else if (milliseconds() - firstAt > oneInterrupt)
    end(signal, "interrupted twice: ended at once, nothing more was written; by ");
}

void endOnInterrupt(unsigned rank) {
  if (rank != 0)
    *fmt::format_to_n(beginning.data(), beginning.size() - 1, "error: rank {}: ", rank).out = '\0';
  struct sigaction action {};
  action.sa_handler = [](int signal) { end(signal, "interrupted by "); };
  sigemptyset(&action.sa_mask);
  for (int signal : signals) {
    struct sigaction now {};
    if (sigaction(signal, nullptr, &now) == 0 && now.sa_handler == SIG_DFL) // respect nohup
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

/// How often processes communicate: often enough to notice an interrupt soon, rarely enough to cost nothing.
constexpr double secondsBetween = 0.25;
constexpr int64_t mostStepsBetween = 10000;

/// Asks whether any rank was interrupted, and agrees on when to ask again: the earliest time that any rank proposes.
void StopAgreement::ask(int64_t step) {
  const Clock::time_point now = Clock::now();
  int64_t steps = 1;
  if (asked > 0) {
    const double seconds = std::chrono::duration<double>(now - askedAt).count() / double(step - asked);
    steps = int64_t(std::clamp(secondsBetween / std::max(seconds, 1e-9), 1.0, double(mostStepsBetween)));
  }
  const std::array<int64_t, 2> mine{InterruptGuard::interrupted() ? 1 : 0, -steps};
  std::array<int64_t, 2> all{};
  others->allReduce(mine.data(), all.data(), all.size(), plan::DType::I64, plan::ReduceKind::Max);
  if (all[0])
    last = step - 1;
  asked = step;
  askedAt = now;
  next = step - all[1];
}

void StopAgreement::askSoon() {
  std::lock_guard lock(mutex);
  next = 0;
}

bool StopAgreement::mayBegin(int64_t step) {
  std::lock_guard lock(mutex);
  if (others && last < 0 && step >= next)
    ask(step);
  if (!others && last < 0 && InterruptGuard::interrupted())
    last = begun;
  if (last >= 0 && step > last)
    return false;
  begun = std::max(begun, step);
  return true;
}

} // namespace cleave
