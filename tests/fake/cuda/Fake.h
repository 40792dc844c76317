// Functions of the fake driver in addition to CUDA's, for the other fakes and for tests, which find them by dlsym in
// libcuda.so.1. All are thread-safe.
#pragma once
#include <cstddef>
#include <cstdint>

#define CLEAVE_FAKE_EXPORT extern "C" __attribute__((visibility("default")))

/// The nth call from now (1: the next) of `function` (its exported name: "cuMemAlloc_v2") returns `code` and does
/// nothing else. "work": the nth operation that a stream runs fails, which is the context's error from then on.
CLEAVE_FAKE_EXPORT void cleaveFakeFail(const char *function, int nth, int code);

/// Forgets failures that have not happened yet, counters, races and the contexts' errors. What lives goes on living.
CLEAVE_FAKE_EXPORT void cleaveFakeReset();

/// How often `function` was called.
CLEAVE_FAKE_EXPORT uint64_t cleaveFakeCalls(const char *function);

/// Objects that nobody has destroyed: memory, streams, events, graphs, graph executables, modules. The text names them.
CLEAVE_FAKE_EXPORT size_t cleaveFakeLeaks();
CLEAVE_FAKE_EXPORT const char *cleaveFakeLeaksText();

/// Races found so far (race=1) and the text of the last.
CLEAVE_FAKE_EXPORT uint64_t cleaveFakeRaces();
CLEAVE_FAKE_EXPORT const char *cleaveFakeRaceText();

/// Operations that streams and graphs have run.
CLEAVE_FAKE_EXPORT uint64_t cleaveFakeWorkDone();

/// Changes settings as CLEAVE_FAKE_CUDA would, those for devices before cuInit only.
CLEAVE_FAKE_EXPORT void cleaveFakeSet(const char *settings);

struct CleaveFakeRange {
  const void *begin;
  size_t bytes;
  int written;
};

/// Work of a library: what a stream runs, or a graph, as often as it is launched.
struct CleaveFakeWork {
  const char *name;            ///< stays valid
  int (*run)(void *data);      ///< a CUresult; other than 0 it is the context's error from then on
  void (*release)(void *data); ///< may be null; called when the work cannot run again
  void *data;
  const CleaveFakeRange *ranges; ///< what it reads and writes, for race=1; copied
  size_t rangeCount;
};

/// Puts work into a stream (or into the graph that is captured there). A CUresult; on failure `release` is not called.
CLEAVE_FAKE_EXPORT int cleaveFakeEnqueueWork(void *stream, const CleaveFakeWork *work);
/// The same for a function and data that outlive it. 0 on success.
CLEAVE_FAKE_EXPORT int cleaveFakeEnqueue(void *stream, void (*work)(void *), void *data);

/// Counts a call of another library's function; the code that cleaveFakeFail wants it to return, or 0.
CLEAVE_FAKE_EXPORT int cleaveFakeCount(const char *function);
/// One object more or less of a kind, for cleaveFakeLeaks.
CLEAVE_FAKE_EXPORT void cleaveFakeObject(const char *kind, int change);

/// Whether products have algorithms with activations, their gradients and those of biases in the epilogue.
CLEAVE_FAKE_EXPORT int cleaveFakeActivations();

/// The device (ordinal) of a stream, -1 where it is no stream.
CLEAVE_FAKE_EXPORT int cleaveFakeStreamDevice(void *stream);
/// Is [begin, begin + bytes) inside one allocation of device memory? The device's ordinal, or -1.
CLEAVE_FAKE_EXPORT int cleaveFakeDeviceOf(const void *begin, size_t bytes);
