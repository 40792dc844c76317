// The progress bar and its plain-text form.
#include "runtime/session/Progress.h"
#include "runtime/base/Counted.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fmt/format.h>
#include <unistd.h>

namespace cleave {

std::string clockTime(double seconds) {
  if (!(seconds >= 0) || seconds > 1e8)
    return "?";
  const int64_t s = int64_t(seconds + 0.5);
  return s < 3600 ? fmt::format("{}:{:02}", s / 60, s % 60)
                  : fmt::format("{}:{:02}:{:02}", s / 3600, s / 60 % 60, s % 60);
}

Progress::Progress(int64_t total, bool quiet, FILE *to)
    : total(total), quiet(quiet), terminal(isatty(fileno(to)) == 1), to(to) {}

void Progress::step(int64_t step, double loss, double rate) {
  if (quiet)
    return;
  if (first < 0)
    first = step - 1;
  const auto now = Clock::now();
  const double since = std::chrono::duration<double>(now - last).count();
  // A terminal is redrawn ten times a second; other outputs get a line every ten seconds. The last step is always
  // shown.
  if (step < total && since < (terminal ? 0.1 : 10.0))
    return;
  last = now;
  draw(step, loss, rate);
}

void Progress::draw(int64_t step, double loss, double rate) {
  const double gone = std::chrono::duration<double>(last - began).count();
  const double left = gone / double(std::max<int64_t>(1, step - first)) * double(total - step);
  const std::string numbers = fmt::format("step {}/{}  loss {:.4f}  {} samples/s", step, total, loss,
                                          grouped(std::isfinite(rate) ? int64_t(rate) : 0));
  if (!terminal) {
    say(fmt::format("{}  {} left\n", numbers, clockTime(left)));
  } else {
    const int width = 30, full = int(double(width) * double(step) / double(std::max<int64_t>(1, total)));
    say(fmt::format("\r[{:<{}}] {}  {} left\x1b[K", std::string(size_t(full), '#'), width, numbers, clockTime(left)));
    open = true;
  }
}

/// Ignores errors: failing to show progress does not end training.
void Progress::say(const std::string &text) {
  std::fputs(text.c_str(), to);
  std::fflush(to);
}

void Progress::line(const std::string &text) {
  if (quiet)
    return;
  finish();
  say(text + "\n");
}

void Progress::finish() {
  if (open)
    fputc('\n', to);
  open = false;
}

} // namespace cleave
