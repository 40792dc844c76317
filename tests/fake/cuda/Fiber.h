// Fibers: the threads of a GPU block take turns on one host thread.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

namespace cleave::fake {

/// One block of threads that may wait for one another. A host thread runs one block at a time.
class FiberBlock {
public:
  /// Runs `body` once for every thread; `body` may call the functions below. Returns false if the threads of the block
  /// wait at different places (`why` gives the reason); waiting threads are then abandoned.
  bool run(unsigned threads, const std::function<void(unsigned)> &body);
  const char *why = "";

  unsigned current = 0;
  void barrier();
  void warpBarrier();
  /// Exchanges words within a warp: returns the word that the thread `lane` brings.
  uint32_t exchange(uint32_t word, unsigned lane);

  /// The block that this host thread runs, or null.
  static FiberBlock *running();

private:
  enum class State : uint8_t { Ready, Warp, Block, Done };
  struct Fiber {
    void *stack = nullptr; ///< saved stack pointer
    State state = State::Ready;
    unsigned turn = 0; ///< index into `words`
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
  void *host = nullptr; ///< saved stack pointer of the host
  [[maybe_unused]] void *hostSanitizer = nullptr;
};

} // namespace cleave::fake
