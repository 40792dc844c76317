// Threads of a rank. The runtime shares the libgomp pool that oneDNN uses, so a rank never has two pools.
#pragma once
#include <cstdint>
#include <type_traits>

namespace cleave {

/// Sets the number of threads for library calls from this thread.
void setThreads(unsigned threads);

/// Calls fn(context, thread) for thread = 0 .. threads - 1 in parallel, and waits. `fn` must not throw.
void parallelCall(unsigned threads, void (*fn)(void *context, unsigned thread), void *context);

/// Calls fn(thread) for each thread; fn must not throw.
template <typename Fn> void parallelFor(unsigned threads, Fn &&fn) {
  if (threads <= 1) {
    fn(0u);
    return;
  }
  parallelCall(
      threads, [](void *context, unsigned thread) { (*static_cast<std::remove_reference_t<Fn> *>(context))(thread); },
      const_cast<void *>(static_cast<const void *>(&fn)));
}

/// Calls fn(begin, end) over [0, extent) in contiguous chunks, one per thread, each a multiple of `grain` (except the
/// last).
template <typename Fn> void parallelRange(unsigned threads, int64_t extent, int64_t grain, Fn &&fn) {
  if (extent <= 0)
    return;
  int64_t blocks = (extent + grain - 1) / grain;
  if (threads <= 1 || blocks <= 1) {
    fn(int64_t{0}, extent);
    return;
  }
  if (blocks < threads)
    threads = static_cast<unsigned>(blocks);
  parallelFor(threads, [&](unsigned thread) {
    int64_t begin = blocks * thread / threads * grain, end = blocks * (thread + 1) / threads * grain;
    fn(begin, end < extent ? end : extent);
  });
}

} // namespace cleave
