// Streams: each is a thread that runs the items of its queue in order. Waits and event records are queue items too.
#pragma once
#include "tests/fake/cuda/Race.h"
#include "tests/fake/cuda/World.h"

#include <deque>

namespace cleave::fake {

/// Work of a stream or a graph. Exists as long as it may run again.
struct Work {
  const char *name = "";
  std::function<CUresult()> run;
  std::vector<Range> ranges;
};
using WorkPointer = std::shared_ptr<const Work>;

/// A point of a stream's queue, for others to wait on.
struct Moment {
  bool done = false;
  std::chrono::steady_clock::time_point when;
  Clock clock;
  std::vector<CUstream> waiting;
};
using MomentPointer = std::shared_ptr<Moment>;

struct Item {
  MomentPointer wait = nullptr;
  WorkPointer work = nullptr;
  MomentPointer record = nullptr;
};

struct Capture;

/// The stream of a handle (null and CU_STREAM_LEGACY: the context's null stream); null if the handle is invalid.
CUstream streamOf(const Call &call, CUstream handle);
CUstream makeStream(World &w, CUcontext context, unsigned flags, int priority);

/// Puts work into a stream, or into the graph that is captured there.
CUresult submit(World &w, CUstream stream, Work work);
/// Puts an item into the queue of a stream that is not captured.
void push(CUstream stream, Item item);
/// Returns a moment after all work that is in the stream now.
MomentPointer mark(World &w, CUstream stream);
/// Waits with the lock released. The race detector then knows that the host has seen all work before the moment.
void await(Call &call, const MomentPointer &moment);
/// Waits for all streams of a context.
void awaitContext(Call &call, CUcontext context);

/// Runs work without the lock. An error result becomes the context's error.
void perform(World &w, std::unique_lock<std::mutex> &lock, CUcontext context, const Work &work);

} // namespace cleave::fake

struct CUgraphNode_st;

struct CUstream_st {
  CUcontext context = nullptr;
  unsigned flags = 0;
  int priority = 0, number = 0;
  bool closing = false, busy = false;
  std::deque<cleave::fake::Item> queue;
  std::condition_variable wake;
  cleave::fake::Clock clock;
  cleave::fake::MomentPointer legacySeen;         ///< the null stream's work that this stream already waits for
  std::shared_ptr<cleave::fake::Capture> capture; ///< null: not captured
  std::vector<CUgraphNode_st *> tails;            ///< capture: the nodes that the next node depends on
};
