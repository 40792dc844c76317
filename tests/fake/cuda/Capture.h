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
  std::vector<CUstream> streams; ///< the origin stream and those that joined
};
using CapturePointer = std::shared_ptr<Capture>;

/// Refuses a call that CUDA does not allow while this thread (in global mode: any thread) captures, and makes the
/// capture invalid.
CUresult refusedInCapture(World &w);
/// Makes a capture invalid. Returns `result`.
CUresult spoil(Capture &capture, CUresult result);
/// Adds a node to the graph that is captured in the stream.
CUresult addNode(CUstream stream, Work work);
/// Makes the stream wait for an event that was recorded during capture.
CUresult waitCaptured(World &w, CUstream stream, CUevent event);

} // namespace cleave::fake

struct CUevent_st {
  CUcontext context = nullptr;
  unsigned flags = 0;
  cleave::fake::MomentPointer latest;   ///< null: never recorded
  cleave::fake::CapturePointer capture; ///< the capture in which it was last recorded
  std::vector<CUgraphNode_st *> captured;
};

struct CUgraphNode_st {
  cleave::fake::WorkPointer work;
  std::vector<CUgraphNode_st *> after;
  size_t index = 0;
  int lane = 0; ///< number of the stream in which the node was captured
};

struct CUgraph_st {
  std::vector<std::unique_ptr<CUgraphNode_st>> nodes;
};
