// Progress of a run on standard error: on a terminal a bar that redraws itself, otherwise occasional plain lines.
#pragma once
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <string>

namespace cleave {

class Progress {
public:
  /// `total`: number of steps of the run; `quiet`: prints nothing.
  Progress(int64_t total, bool quiet, FILE *to = stderr);
  ~Progress() { finish(); }

  /// Call after a step. `rate`: samples per second.
  void step(int64_t step, double loss, double rate);
  /// Prints a separate line, for example an epoch's evaluation.
  void line(const std::string &text);
  /// Ends the bar's line.
  void finish();

private:
  using Clock = std::chrono::steady_clock;
  void draw(int64_t step, double loss, double rate);
  void say(const std::string &text);

  int64_t total, first = -1;
  bool quiet, terminal, open = false;
  FILE *to;
  Clock::time_point began = Clock::now(), last{};
};

/// A duration for display: "0:07", "12:40", "3:05:00".
std::string clockTime(double seconds);

} // namespace cleave
