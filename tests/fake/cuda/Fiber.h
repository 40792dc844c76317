// Fibers: the threads of a GPU block, taking turns on one host thread.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

namespace cleave::fake {

/// One block of threads that may wait for one another. One at a time on a thread of the host.
class FiberBlock {
public:
  /// Runs `body` once for every thread; calls of the functions below are allowed in it. False where the threads of the
  /// block do not agree where to wait (`why` says how); those that waited are then given up.
  bool run(unsigned threads, const std::function<void(unsigned)> &body);
  const char *why = "";

  unsigned current = 0;
  void barrier();
  void warpBarrier();
  /// The word that the thread `lane` of the same warp brings.
  uint32_t exchange(uint32_t word, unsigned lane);

  /// The block that this thread of the host runs, or null.
  static FiberBlock *running();

private:
  enum class State : uint8_t { Ready, Warp, Block, Done };
  struct Fiber {
    void *stack = nullptr; ///< saved stack pointer
    State state = State::Ready;
    unsigned turn = 0; ///< of `words`
    uint32_t words[2] = {};
    void *sanitizer = nullptr;
  };
  static void enter();
  void resume(unsigned thread);
  void leave(State state);
  bool runWarp(unsigned first, unsigned last);
  bool refuse(const char *text);
  void prepare(unsigned threads);

  std::vector<Fiber> fibers;
  const std::function<void(unsigned)> *body = nullptr;
  void *host = nullptr; ///< saved stack pointer of who resumed
  [[maybe_unused]] void *hostSanitizer = nullptr;
};

} // namespace cleave::fake
