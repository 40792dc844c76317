// Work that is given up because nobody waits for its result any more.
#pragma once
#include <exception>
#include <functional>

namespace cleave {

/// Whether to give up; asked often, by any thread. Empty: never.
using Stops = std::function<bool()>;

/// Ends the work that was given up. No error: whoever asked for the work goes on without it.
struct Stopped : std::exception {
  const char *what() const noexcept override { return "given up"; }
};

inline void throwIfStopped(const Stops &stops) {
  if (stops && stops())
    throw Stopped();
}

} // namespace cleave
