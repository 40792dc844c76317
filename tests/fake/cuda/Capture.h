// Stream capture: work enqueued in a captured stream becomes graph nodes that depend on earlier nodes of the stream and
// of the events it waited for.
#pragma once
#include "tests/fake/cuda/Stream.h"

#include <thread>

namespace cleave::fake {

struct Capture {
  uint64_t id = 0;
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
  std::thread::id thread;
  CUstream origin = nullptr;
  CUgraph graph = nullptr;
  bool active = true, invalid = false;
  std::vector<CUstream> streams; ///< the origin and those that joined
};
using CapturePointer = std::shared_ptr<Capture>;

/// A call that cannot be ordered among what streams do is refused while this thread (or, in global mode, any) captures,
/// and makes the capture invalid.
CUresult refusedInCapture(World &w);
/// Makes a capture invalid. Returns `result`.
CUresult spoil(Capture &capture, CUresult result);
/// Adds a node to the graph that is captured in the stream.
CUresult addNode(CUstream stream, Work work);
/// The stream waits for an event that was recorded while captured.
CUresult waitCaptured(World &w, CUstream stream, CUevent event);

} // namespace cleave::fake

struct CUevent_st {
  CUcontext context = nullptr;
  unsigned flags = 0;
  cleave::fake::MomentPointer latest;   ///< null: never recorded
  cleave::fake::CapturePointer capture; ///< last recorded in a captured stream
  std::vector<CUgraphNode_st *> captured;
};

struct CUgraphNode_st {
  cleave::fake::WorkPointer work;
  std::vector<CUgraphNode_st *> after;
  size_t index = 0;
  int lane = 0; ///< number of the stream it was captured in
};

struct CUgraph_st {
  std::vector<std::unique_ptr<CUgraphNode_st>> nodes;
};
