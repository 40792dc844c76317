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
  /// Scratch memory, the same every time.
  virtual void *memory(size_t bytes) = 0;
  virtual void finish() = 0;
  /// Does the work `times` times: with a driver it is captured once into a graph, which is launched as often.
  virtual void replay(unsigned times, const std::function<void()> &work) = 0;
  virtual bool hasDriver() const = 0;
};

Place &place();

} // namespace cleave::test
