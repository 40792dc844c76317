// Reads intervals between checkpoints, and agrees on the steps at which they end.
#include "runtime/session/CheckpointInterval.h"
#include "runtime/base/Error.h"
#include "runtime/checkpoint/Manifest.h"
#include "runtime/plan/plan_generated.h"

#include <algorithm>
#include <charconv>
#include <fmt/format.h>
#include <numeric>
#include <vector>

namespace cleave {

CheckpointInterval CheckpointInterval::parse(const std::string &text) {
  CheckpointInterval interval;
  if (text.empty())
    return interval;
  const char *begin = text.data(), *end = begin + text.size();
  if (const auto [at, error] = std::from_chars(begin, end, interval.steps);
      error == std::errc() && at == end && interval.steps > 0 && interval.steps < mostSteps)
    return interval;
  interval.steps = 0;
  const auto [unit, error] = std::from_chars(begin, end, interval.seconds, std::chars_format::fixed);
  const std::string_view word(unit, size_t(end - unit));
  const double factor = word == "s" ? 1 : word == "m" ? 60 : word == "h" ? 3600 : 0;
  interval.seconds *= factor;
  if (error == std::errc() && interval.seconds >= 1e-3 && interval.seconds < 1e9)
    return interval;
  throw userError(
      fmt::format("--checkpoint-every {}: must be a number of steps, or a time such as 90s, 30m or 2h", text));
}

CheckpointTimer::CheckpointTimer(const CheckpointInterval &interval, RankEndpoint &world)
    : interval(interval), decides(world.rank() == 0) {
  if (interval.seconds <= 0 || world.size() == 1)
    return;
  std::vector<uint32_t> ranks(world.size());
  std::iota(ranks.begin(), ranks.end(), 0);
  all = &world.group(ranks);
}

std::array<int64_t, 2> CheckpointTimer::decide(int64_t step) {
  constexpr double secondsBetween = 1;
  constexpr int64_t mostStepsBetween = 1000;
  const auto seconds = [](Clock::duration time) { return std::chrono::duration<double>(time).count(); };
  const Clock::time_point now = Clock::now();
  const double left = interval.seconds - seconds(now - begun), wait = left > 0 ? left : interval.seconds;
  int64_t steps = 1;
  if (asked >= 0) { // a rate measured over few steps counts for few
    const int64_t taken = step - asked, most = std::min(2 * taken, mostStepsBetween);
    const double each = seconds(now - askedAt) / double(taken);
    steps = int64_t(std::clamp(std::min(wait, secondsBetween) / std::max(each, 1e-9), 1.0, double(most)));
  }
  asked = step;
  askedAt = now;
  return {left <= 0, step + steps};
}

bool CheckpointTimer::due(int64_t step) {
  if (interval.steps > 0)
    return step % interval.steps == 0;
  if (interval.seconds <= 0 || step < next)
    return false;
  std::array<int64_t, 2> said{};
  if (decides)
    said = decide(step);
  if (all)
    all->broadcast(said.data(), said.data(), said.size(), plan::DType::I64);
  next = said[1];
  return said[0] != 0;
}

} // namespace cleave
