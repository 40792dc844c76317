// Functions of the fake driver in addition to CUDA's, for the other fakes and for tests, which find them in
// libcuda.so.1 with dlsym. All are thread-safe.
#pragma once
#include <cstddef>
#include <cstdint>

#define CLEAVE_FAKE_EXPORT extern "C" __attribute__((visibility("default")))

/// The nth call from now (1: the next) of `function` (its exported name: "cuMemAlloc_v2") returns `code` and does
/// nothing else. "work": the nth operation that a stream runs fails; later calls report this as the context's error.
CLEAVE_FAKE_EXPORT void cleaveFakeFail(const char *function, int nth, int code);

/// Clears failures that have not happened yet, counters, races and the contexts' errors. Objects are not destroyed.
CLEAVE_FAKE_EXPORT void cleaveFakeReset();

/// The number of calls of `function`.
CLEAVE_FAKE_EXPORT uint64_t cleaveFakeCalls(const char *function);

/// The number of objects not destroyed: memory, streams, events, graphs, graph executables, modules. The text lists
/// them.
CLEAVE_FAKE_EXPORT size_t cleaveFakeLeaks();
CLEAVE_FAKE_EXPORT const char *cleaveFakeLeaksText();

/// The number of races found so far (race=1), and the text of the last one.
CLEAVE_FAKE_EXPORT uint64_t cleaveFakeRaces();
CLEAVE_FAKE_EXPORT const char *cleaveFakeRaceText();

/// The number of operations that streams and graphs have run.
CLEAVE_FAKE_EXPORT uint64_t cleaveFakeWorkDone();

/// Changes settings, in the syntax of CLEAVE_FAKE_CUDA. Settings of devices have an effect only before cuInit.
CLEAVE_FAKE_EXPORT void cleaveFakeSet(const char *settings);

struct CleaveFakeRange {
  const void *begin;
  size_t bytes;
  int written;
};

/// Work of a library that a stream or a graph runs, once per launch.
struct CleaveFakeWork {
  const char *name;            ///< must stay valid
  int (*run)(void *data);      ///< returns a CUresult; a value other than 0 becomes the context's error
  void (*release)(void *data); ///< may be null; called when the work will not run again
  void *data;
  const CleaveFakeRange *ranges; ///< the memory that it reads and writes, for race=1; copied
  size_t rangeCount;
};

/// Puts work into a stream (or into the graph that is captured there). Returns a CUresult; `release` is not called on
/// failure.
CLEAVE_FAKE_EXPORT int cleaveFakeEnqueueWork(void *stream, const CleaveFakeWork *work);
/// The same for a function and data that outlive the work. Returns 0 on success.
CLEAVE_FAKE_EXPORT int cleaveFakeEnqueue(void *stream, void (*work)(void *), void *data);

/// Counts a call of another library's function. Returns the code set with cleaveFakeFail, or 0.
CLEAVE_FAKE_EXPORT int cleaveFakeCount(const char *function);
/// Adds `change` to the number of objects of a kind, for cleaveFakeLeaks.
CLEAVE_FAKE_EXPORT void cleaveFakeObject(const char *kind, int change);

/// Whether cuBLASLt has algorithms with activations, their gradients and bias gradients in the epilogue.
CLEAVE_FAKE_EXPORT int cleaveFakeActivations();

/// The device (ordinal) of a stream; -1 if it is not a stream.
CLEAVE_FAKE_EXPORT int cleaveFakeStreamDevice(void *stream);
/// The ordinal of the device with an allocation that contains [begin, begin + bytes); -1 if there is none.
CLEAVE_FAKE_EXPORT int cleaveFakeDeviceOf(const void *begin, size_t bytes);
