// Signal handlers. They only call functions that are safe there.
#include "runtime/session/Interrupt.h"
#include "runtime/base/Error.h"
#include "runtime/comm/socket/PeerWatch.h"
#include "runtime/plan/plan_generated.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <charconv>
#include <cmath>
#include <csignal>
#include <ctime>
#include <fmt/format.h>
#include <string_view>
#include <sys/time.h>
#include <unistd.h>

namespace cleave {

static std::atomic<int> interrupts{0}, firstSignal{0};
static std::atomic<int64_t> firstAt{0}, lastSaved{-1};
constexpr int64_t oneInterrupt = 1000; ///< milliseconds; a launcher also forwards the terminal's signal
static_assert(std::atomic<int>::is_always_lock_free && std::atomic<int64_t>::is_always_lock_free);

namespace {

struct Signal {
  int number;
  std::string_view name;
};

/// Signals by which users and schedulers ask a program to end.
constexpr std::array interruptSignals{Signal{SIGINT, "SIGINT"},   Signal{SIGTERM, "SIGTERM"},
                                      Signal{SIGHUP, "SIGHUP"},   Signal{SIGXCPU, "SIGXCPU"},
                                      Signal{SIGUSR1, "SIGUSR1"}, Signal{SIGUSR2, "SIGUSR2"}};
/// Other signals that would end a program without a message.
constexpr std::array otherSignals{
    Signal{SIGQUIT, "SIGQUIT"}, Signal{SIGALRM, "SIGALRM"}, Signal{SIGVTALRM, "SIGVTALRM"}, Signal{SIGPROF, "SIGPROF"},
    Signal{SIGIO, "SIGIO"},     Signal{SIGPWR, "SIGPWR"},   Signal{SIGSTKFLT, "SIGSTKFLT"}, Signal{SIGABRT, "SIGABRT"},
    Signal{SIGBUS, "SIGBUS"},   Signal{SIGFPE, "SIGFPE"},   Signal{SIGILL, "SIGILL"},       Signal{SIGSEGV, "SIGSEGV"},
    Signal{SIGSYS, "SIGSYS"},   Signal{SIGTRAP, "SIGTRAP"}};

std::string_view nameOf(int signal) {
  for (const Signal &each : interruptSignals)
    if (each.number == signal)
      return each.name;
  for (const Signal &each : otherSignals)
    if (each.number == signal)
      return each.name;
  return "a signal";
}

/// A line of text that a signal handler composes.
class Line {
public:
  Line &operator<<(std::string_view part) {
    const size_t count = std::min(part.size(), text.size() - length);
    std::copy_n(part.data(), count, text.data() + length);
    length += count;
    return *this;
  }
  Line &operator<<(int64_t number) {
    std::array<char, 24> digits;
    return *this << std::string_view(digits.data(), std::to_chars(digits.data(), digits.end(), number).ptr);
  }
  std::string_view view() const { return {text.data(), length}; }

private:
  std::array<char, 400> text{};
  size_t length = 0;
};

std::array<char, 32> beginning{"error: "}; ///< start of the message; set before the handler is installed
std::array<char, 32> graceText{};          ///< "--grace 5 s"
timespec graceTime{};                      ///< 0: no limit

/// Ends the process from a signal handler.
[[noreturn]] void end(std::string_view text, std::string_view toOthers, Status status) {
  PeerWatch::endedBy(toOthers, status);
  Line line;
  line << beginning.data() << text << "\n";
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, line.view().data(), line.view().size());
  _exit(int(status));
}

[[noreturn]] void endBySignal(int signal, std::string_view before) {
  Line text, toOthers;
  text << before << nameOf(signal);
  toOthers << "it was ended by " << nameOf(signal);
  end(text.view(), toOthers.view(), Status::Environment);
}

/// A signal that the program itself has caused, or that someone sent.
[[noreturn]] void onOther(int signal, siginfo_t *info, void *) {
  const bool own = info->si_code > 0 || (signal == SIGABRT && info->si_pid == ::getpid());
  if (!own)
    endBySignal(signal, "interrupted by ");
  Line text;
  const bool disk = signal == SIGBUS; // a page of a mapped file that has no place on its disk, or no longer exists
  text << (disk ? "a mapped file cannot be read or written, for example because a disk or /dev/shm is full: "
                : "internal error: ")
       << nameOf(signal);
  end(text.view(), text.view(), disk ? Status::Environment : Status::Internal);
}

int64_t milliseconds() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t(now.tv_sec) * 1000 + now.tv_nsec / 1000000;
}

void onInterrupt(int signal) {
  if (interrupts.fetch_add(1) == 0) {
    firstAt = milliseconds();
    firstSignal = signal;
    if (graceTime.tv_sec || graceTime.tv_nsec) {
      const itimerval after{{}, {graceTime.tv_sec, graceTime.tv_nsec / 1000}};
      setitimer(ITIMER_REAL, &after, nullptr);
    }
  } else if (milliseconds() - firstAt > oneInterrupt)
    endBySignal(signal, "interrupted twice: ended at once, nothing more was written; by ");
}

/// The grace has passed.
[[noreturn]] void onAlarm(int) {
  Line text, toOthers;
  text << "interrupted by " << nameOf(firstSignal) << ": did not end within " << graceText.data() << "; ";
  if (lastSaved < 0)
    text << "no checkpoint was written";
  else
    text << "the last checkpoint known to be complete is of step " << lastSaved;
  toOthers << "it was interrupted by " << nameOf(firstSignal) << " and did not end within " << graceText.data();
  end(text.view(), toOthers.view(), Status::Environment);
}

/// The current action of a signal.
struct sigaction actionOf(int signal) {
  struct sigaction now {};
  sigaction(signal, nullptr, &now);
  return now;
}

} // namespace

void endOnSignals(unsigned rank) {
  static bool once = false;
  if (once)
    return;
  once = true;
  if (rank != 0)
    *fmt::format_to_n(beginning.data(), beginning.size() - 1, "error: rank {}: ", rank).out = '\0';
  const auto unlessHandled = [](int signal, const struct sigaction &action) {
    if (actionOf(signal).sa_handler == SIG_DFL)
      sigaction(signal, &action, nullptr);
  };
  struct sigaction action {};
  action.sa_handler = [](int signal) { endBySignal(signal, "interrupted by "); };
  sigemptyset(&action.sa_mask);
  for (const Signal &signal : interruptSignals)
    unlessHandled(signal.number, action);
  action.sa_flags = SA_SIGINFO | SA_ONSTACK | int(SA_RESETHAND);
  action.sa_sigaction = onOther;
  for (const Signal &signal : otherSignals)
    unlessHandled(signal.number, action);
}

void useSignalStack() {
  static std::array<char, 64 << 10> memory;
  stack_t stack{};
  stack.ss_sp = memory.data();
  stack.ss_size = memory.size();
  sigaltstack(&stack, nullptr);
}

static std::array<struct sigaction, interruptSignals.size()> previous;
static struct sigaction previousAlarm;
static int guards = 0;

InterruptGuard::InterruptGuard(double grace) {
  if (guards++ > 0)
    return;
  interrupts = 0;
  lastSaved = -1;
  const double seconds = std::min(grace, 1e9), whole = std::floor(seconds);
  graceTime = {time_t(whole), long((seconds - whole) * 1e9)};
  *fmt::format_to_n(graceText.data(), graceText.size() - 1, "--grace {} s", grace).out = '\0';
  struct sigaction action {};
  sigemptyset(&action.sa_mask);
  action.sa_handler = onAlarm;
  sigaction(SIGALRM, nullptr, &previousAlarm);
  if (grace > 0)
    sigaction(SIGALRM, &action, nullptr);
  action.sa_handler = onInterrupt;
  action.sa_flags = SA_RESTART;
  for (size_t i = 0; i < interruptSignals.size(); ++i) {
    previous[i] = actionOf(interruptSignals[i].number);
    if (previous[i].sa_handler != SIG_IGN) // as under nohup
      sigaction(interruptSignals[i].number, &action, nullptr);
  }
}

InterruptGuard::~InterruptGuard() {
  if (--guards > 0)
    return;
  const itimerval none{};
  setitimer(ITIMER_REAL, &none, nullptr);
  for (size_t i = 0; i < interruptSignals.size(); ++i)
    sigaction(interruptSignals[i].number, &previous[i], nullptr);
  sigaction(SIGALRM, &previousAlarm, nullptr);
}

bool InterruptGuard::interrupted() { return interrupts.load(std::memory_order_relaxed) > 0; }

void InterruptGuard::saved(int64_t step) { lastSaved = step; }

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
