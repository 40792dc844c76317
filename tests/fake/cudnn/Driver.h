// The fake driver, if it is loaded: found by name at run time, so that this library also works without it. The
// declarations match tests/fake/cuda/Fake.h.
#pragma once
#include <cstddef>
#include <memory>
#include <vector>

namespace cleave::fake {

/// Memory that work reads or writes.
struct TouchedRange {
  const void *begin;
  size_t bytes;
  int written;
};

class StreamWork {
public:
  virtual ~StreamWork() = default;
  virtual void run() = 0;
  virtual std::vector<TouchedRange> ranges() const { return {}; }
};

/// Puts work into a stream; without a driver the work runs immediately. Returns false if the driver refuses it.
bool enqueue(void *stream, std::unique_ptr<StreamWork> work, const char *name);

/// The status that a test has set for the next call of `function`; 0: none.
int wantedFailure(const char *function);

} // namespace cleave::fake
