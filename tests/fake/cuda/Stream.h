// Streams: each is a thread that runs the items of its queue in order. Waits and event records are queue items too.
#pragma once
#include "tests/fake/cuda/Race.h"
#include "tests/fake/cuda/World.h"

#include <deque>

namespace cleave::fake {

/// Something a stream or a graph runs. It lives as long as it may run again.
struct Work {
  const char *name = "";
  std::function<CUresult()> run;
  std::vector<Range> ranges;
};
using WorkPointer = std::shared_ptr<const Work>;

/// A point of a stream's queue that others may wait for.
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

/// The stream that a handle means (null and CU_STREAM_LEGACY: the context's own), or null where it is none.
CUstream streamOf(const Call &call, CUstream handle);
CUstream makeStream(World &w, CUcontext context, unsigned flags, int priority);

/// Puts work into a stream, or into the graph that is captured there.
CUresult submit(World &w, CUstream stream, Work work);
/// Puts an item into the queue of a stream that is not captured.
void push(CUstream stream, Item item);
/// A moment after everything that is in the stream now.
MomentPointer mark(World &w, CUstream stream);
/// Waits, the lock released meanwhile, and knows from then on that what came before is done.
void await(Call &call, const MomentPointer &moment);
/// Waits for all streams of a context.
void awaitContext(Call &call, CUcontext context);

/// Runs work without the lock. What it answers becomes the context's error.
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
  std::vector<CUgraphNode_st *> tails;            ///< capture: what the next node comes after
};
