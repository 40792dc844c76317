// Switches between fibers, and synchronises them.
#include "tests/fake/cuda/Fiber.h"

#include <cstdlib>
#include <cstring>
#include <sys/mman.h>

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define CLEAVE_FAKE_ASAN 1
#include <sanitizer/common_interface_defs.h>
#endif
#if __has_feature(thread_sanitizer)
#define CLEAVE_FAKE_TSAN 1
#include <sanitizer/tsan_interface.h>
#endif
#endif

// Saves the callee-saved registers, stores the stack pointer at *from, and continues on the stack `to`.
extern "C" void cleaveFakeSwitch(void **from, void *to) __attribute__((visibility("hidden")));
asm(R"(
.text
.hidden cleaveFakeSwitch
.globl cleaveFakeSwitch
.type cleaveFakeSwitch, @function
cleaveFakeSwitch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size cleaveFakeSwitch, .-cleaveFakeSwitch
)");

namespace cleave::fake {

namespace {

constexpr size_t stackBytes = 128 << 10;
constexpr unsigned warp = 32;

/// The stacks of a host thread's fibers, kept for the next block.
struct Stacks {
  std::vector<char *> all;
  ~Stacks() {
    for (char *stack : all)
      munmap(stack, stackBytes);
  }
  char *at(size_t i) {
    while (all.size() <= i) {
      void *map = mmap(nullptr, stackBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
      if (map == MAP_FAILED)
        std::abort();
      mprotect(map, 4096, PROT_NONE);
      all.push_back(static_cast<char *>(map));
    }
    return all[i];
  }
};

thread_local Stacks stacks;
thread_local FiberBlock *active = nullptr;
#ifdef CLEAVE_FAKE_ASAN
thread_local const void *hostBottom = nullptr;
thread_local size_t hostBytes = 0;
#endif

} // namespace

FiberBlock *FiberBlock::running() { return active; }

void FiberBlock::prepare(unsigned threads) {
  fibers.assign(threads, {});
  for (unsigned i = 0; i < threads; ++i) {
    auto *top = reinterpret_cast<void **>(stacks.at(i) + stackBytes);
    *--top = nullptr; // a null return address; aligns the stack as at a call
    *--top = reinterpret_cast<void *>(&FiberBlock::enter);
    top -= 6;
    std::memset(top, 0, 6 * sizeof *top);
    fibers[i].stack = top;
#ifdef CLEAVE_FAKE_TSAN
    fibers[i].sanitizer = __tsan_create_fiber(0);
#endif
  }
}

void FiberBlock::enter() {
#ifdef CLEAVE_FAKE_ASAN
  __sanitizer_finish_switch_fiber(nullptr, &hostBottom, &hostBytes);
#endif
  FiberBlock *block = active;
  (*block->body)(block->current);
  block->leave(State::Done);
}

void FiberBlock::resume(unsigned thread) {
  current = thread;
  fibers[thread].state = State::Ready;
#ifdef CLEAVE_FAKE_ASAN
  __sanitizer_start_switch_fiber(&hostSanitizer, stacks.at(thread), stackBytes);
#endif
#ifdef CLEAVE_FAKE_TSAN
  hostSanitizer = __tsan_get_current_fiber();
  __tsan_switch_to_fiber(fibers[thread].sanitizer, 0);
#endif
  cleaveFakeSwitch(&host, fibers[thread].stack);
#ifdef CLEAVE_FAKE_ASAN
  __sanitizer_finish_switch_fiber(hostSanitizer, nullptr, nullptr);
#endif
}

void FiberBlock::leave(State state) {
  Fiber &fiber = fibers[current];
  fiber.state = state;
#ifdef CLEAVE_FAKE_ASAN
  __sanitizer_start_switch_fiber(state == State::Done ? nullptr : &fiber.sanitizer, hostBottom, hostBytes);
#endif
#ifdef CLEAVE_FAKE_TSAN
  __tsan_switch_to_fiber(hostSanitizer, 0);
#endif
  cleaveFakeSwitch(&fiber.stack, host);
#ifdef CLEAVE_FAKE_ASAN
  __sanitizer_finish_switch_fiber(fiber.sanitizer, &hostBottom, &hostBytes);
#endif
}

void FiberBlock::barrier() { leave(State::Block); }
void FiberBlock::warpBarrier() { leave(State::Warp); }

// Each thread alternates between two words: a writer can overtake a slow reader by one exchange, but not by two.
uint32_t FiberBlock::exchange(uint32_t word, unsigned lane) {
  const unsigned me = current, turn = fibers[me].turn++ & 1, other = me / warp * warp + lane % warp;
  fibers[me].words[turn] = word;
  warpBarrier();
  return other < fibers.size() ? fibers[other].words[turn] : word;
}

bool FiberBlock::refuse(const char *text) {
  why = text;
  return false;
}

/// Runs the threads of a warp until all of them wait for the block or are done.
bool FiberBlock::runWarp(unsigned first, unsigned last) {
  for (;;) {
    unsigned counts[4] = {};
    for (unsigned i = first; i < last; ++i) {
      if (fibers[i].state != State::Done)
        resume(i);
      ++counts[static_cast<int>(fibers[i].state)];
    }
    const unsigned all = last - first, waiting = counts[static_cast<int>(State::Warp)];
    if (waiting == 0)
      return true;
    if (waiting != all)
      return refuse(counts[static_cast<int>(State::Done)] ? "a thread ends while others of its warp wait for it"
                                                          : "threads of a warp wait at different barriers");
  }
}

bool FiberBlock::run(unsigned threads, const std::function<void(unsigned)> &toRun) {
  prepare(threads);
  body = &toRun;
  active = this;
  bool good = true;
  for (bool more = true; good && more;) {
    unsigned done = 0;
    for (unsigned first = 0; good && first < threads; first += warp) {
      const unsigned last = first + warp < threads ? first + warp : threads;
      if (fibers[first].state == State::Ready || fibers[first].state == State::Block)
        good = runWarp(first, last);
      for (unsigned i = first; i < last; ++i)
        done += fibers[i].state == State::Done;
    }
    more = done == 0;
    if (good && done != 0 && done != threads)
      good = refuse("a thread ends while others of its block wait at a barrier");
  }
  active = nullptr;
#ifdef CLEAVE_FAKE_TSAN
  for (Fiber &fiber : fibers)
    __tsan_destroy_fiber(fiber.sanitizer);
#endif
  return good;
}

} // namespace cleave::fake
