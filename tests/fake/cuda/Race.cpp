// Race detection with vector clocks over the streams.
#include "tests/fake/cuda/Race.h"

#include "tests/fake/cuda/World.h"

#include <algorithm>
#include <cstdio>

namespace cleave::fake {

namespace {

uint64_t found = 0;
std::string last;

bool before(const Clock &clock, int number, uint64_t at) {
  const auto entry = clock.find(number);
  return entry != clock.end() && entry->second >= at;
}

} // namespace

void join(Clock &clock, const Clock &other) {
  for (const auto &[number, count] : other)
    clock[number] = std::max(clock[number], count);
}

std::string Races::touch(const char *name, int number, const Clock &now, const std::vector<Range> &ranges) {
  std::string text;
  for (const Range &r : ranges) {
    for (const Touch &t : touched)
      if (conflict(t.range, r) && !before(now, t.number, t.at)) {
        char line[256];
        std::snprintf(line, sizeof line, "%s of stream %d %s what %s of stream %d %s, %zu bytes at %#zx", name, number,
                      r.written ? "writes" : "reads", t.name, t.number, t.range.written ? "writes" : "reads",
                      std::min(r.end, t.range.end) - std::max(r.begin, t.range.begin),
                      std::max(r.begin, t.range.begin));
        text = line;
      }
    if (r.written) // later accesses that follow this write also follow the accesses that it covers
      std::erase_if(touched, [&](const Touch &t) {
        return t.range.begin >= r.begin && t.range.end <= r.end && before(now, t.number, t.at);
      });
  }
  const uint64_t at = now.at(number);
  for (const Range &r : ranges)
    touched.push_back({name, number, at, r});
  return text;
}

void Races::hostSaw(const Clock &clock) {
  join(host, clock);
  std::erase_if(touched, [&](const Touch &t) { return before(host, t.number, t.at); });
}

void Races::forget(uintptr_t begin, uintptr_t end) {
  std::erase_if(touched, [&](const Touch &t) { return t.range.begin < end && begin < t.range.end; });
}

Races &races() {
  static auto *all = new Races;
  return *all;
}

bool reportRace(const std::string &text) {
  ++found;
  last = text;
  std::fprintf(stderr, "fake CUDA: race: %s\n", text.c_str());
  return world().settings.race > 1;
}

uint64_t raceCount() { return found; }
const std::string &lastRace() { return last; }
void forgetRaces() {
  found = 0;
  last.clear();
  races().clear();
}

} // namespace cleave::fake
