// Data race detection (race=1): finds work that accesses the same bytes without ordering, by vector clocks with one
// count per stream. The check runs when work is enqueued, so the result does not depend on timing. Accesses of kernels
// are unknown.
#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace cleave::fake {

struct Range {
  uintptr_t begin, end;
  bool written;
};

inline Range range(const void *begin, size_t bytes, bool written) {
  const auto at = reinterpret_cast<uintptr_t>(begin);
  return {at, at + bytes, written};
}

/// Vector clock: for each stream (by number), how much of its work comes before.
using Clock = std::map<int, uint64_t>;
void join(Clock &clock, const Clock &other);

class Races {
public:
  /// Records the accesses of work in stream `number` with clock `now`. Returns a description of a race, or "".
  std::string touch(const char *name, int number, const Clock &now, const std::vector<Range> &ranges);
  /// The host has waited for the work up to `clock`.
  void hostSaw(const Clock &clock);
  /// The memory was freed.
  void forget(uintptr_t begin, uintptr_t end);
  void clear() { touched.clear(); }
  Clock host;

private:
  struct Touch {
    const char *name;
    int number;
    uint64_t at;
    Range range;
  };
  std::vector<Touch> touched;
};

inline bool conflict(const Range &a, const Range &b) {
  return (a.written || b.written) && a.begin < b.end && b.begin < a.end;
}

Races &races();
/// Records a race and prints it to stderr. Returns true if it must become an error (race=2).
bool reportRace(const std::string &text);
uint64_t raceCount();
const std::string &lastRace();
void forgetRaces();

} // namespace cleave::fake
