// Where the fake cuDNN runs: in a stream and memory of the fake driver if it is loaded, otherwise synchronously on the
// heap.
#pragma once
#include <cstddef>
#include <functional>

using CUstream = struct CUstream_st *;

namespace cleave::test {

class Place {
public:
  virtual ~Place() = default;
  virtual CUstream stream() = 0;
  /// Scratch memory, the same for every call.
  virtual void *memory(size_t bytes) = 0;
  virtual void finish() = 0;
  /// Runs the work `times` times. With a driver, captures it once into a graph and launches the graph `times` times.
  virtual void replay(unsigned times, const std::function<void()> &work) = 0;
  virtual bool hasDriver() const = 0;
};

Place &place();

} // namespace cleave::test
