// All state of the fake driver, guarded by one lock. Streams run their work without the lock.
#pragma once
#pragma GCC visibility push(default)
#include <cuda.h>
#pragma GCC visibility pop

#include "tests/fake/cuda/Fake.h"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

namespace cleave::fake {

struct Settings {
  int devices = 1, sm = 90, driver = 13000, processors = 132;
  size_t memory = size_t{2} << 30;
  std::string name = "Cleave fake GPU";
  bool peer = true, trace = false;
  bool activations = true; ///< cuBLASLt has algorithms with activations
  int race = 0;            ///< 1: reports races; 2: also makes them the context's error
  uint64_t shuffle = 0;    ///< seed; 0: no delays
  int delay = 200;         ///< microseconds of a typical delay
};

struct Block {
  size_t bytes = 0;
  int device = -1; ///< -1: host memory
  void *map = nullptr;
  size_t mapBytes = 0;
  CUcontext context = nullptr;
};

struct Device {
  size_t used = 0;
  CUcontext primary = nullptr;
};

struct Failure {
  uint64_t at;
  int code;
};

struct World {
  std::mutex lock;
  std::condition_variable progress; ///< signals progress to waiting host threads
  Settings settings;
  bool started = false;
  std::vector<Device> devices;
  std::map<uintptr_t, Block> memory;    ///< by first byte: device memory and pinned host memory
  std::set<CUstream> streams, draining; ///< draining: destroyed, with unfinished work
  std::set<CUevent> events;
  std::set<CUmodule> modules;
  std::set<CUgraph> graphs;
  std::set<CUgraphExec> executables;
  std::map<std::string, uint64_t> calls;
  std::multimap<std::string, Failure> failures;
  uint64_t workDone = 0;
  std::map<std::string, int64_t> others; ///< objects of other libraries by kind
};

/// Exists until the process ends, because stream threads may outlive everything else.
World &world();
void applySettings(World &w, const std::string &text);
/// Counts a call. Returns the code with which it must fail, or 0.
int counted(World &w, const std::string &name);

/// Requirements of a function, checked before it starts. Safe: refused during some captures. Frees: runs even after an
/// error of the context, and reports the error.
enum Needs : unsigned { Nothing = 0, Started = 1, Context = 3, Safe = 4, Frees = 8 };

/// Holds the lock during a call of CUDA's interface.
class Call {
public:
  Call(const char *name, unsigned needs);
  CUresult result = CUDA_SUCCESS;
  std::unique_lock<std::mutex> lock;
  World &w;
  CUcontext context = nullptr; ///< the current context
};

#define CLEAVE_FAKE_CALL(needs)                                                                                        \
  ::cleave::fake::Call call(__func__, needs);                                                                          \
  if (call.result != CUDA_SUCCESS)                                                                                     \
  return call.result

CUcontext &currentContext();

/// The block that contains [begin, begin + bytes), or null.
const Block *blockOf(const World &w, const void *begin, size_t bytes);

/// A random number below `below`, from this thread's generator, which is seeded by `shuffle`.
uint64_t randomNumber(uint64_t below);
/// In shuffle mode sometimes waits a little. Call without the lock.
void dawdle();

} // namespace cleave::fake

/// A primary context; there are no others.
struct CUctx_st {
  int device = 0;
  unsigned retained = 0;
  CUresult error = CUDA_SUCCESS; ///< error of work in a stream; every later call reports it
  CUstream legacy = nullptr;     ///< the null stream
};
