// Captures streams into graphs, and rejects calls that are illegal during capture.
#include "tests/fake/cuda/Capture.h"

#include <algorithm>

using namespace cleave::fake;

namespace cleave::fake {

namespace {

std::vector<CapturePointer> &captures() {
  static auto *all = new std::vector<CapturePointer>;
  return *all;
}

CUstreamCaptureMode &threadMode() {
  static thread_local CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
  return mode;
}

void addTails(std::vector<CUgraphNode_st *> &tails, const std::vector<CUgraphNode_st *> &more) {
  for (CUgraphNode_st *node : more)
    if (std::find(tails.begin(), tails.end(), node) == tails.end())
      tails.push_back(node);
}

/// Marks the tails and all nodes that come before them.
std::vector<bool> reached(const CUgraph_st &graph, const std::vector<CUgraphNode_st *> &tails) {
  std::vector<bool> seen(graph.nodes.size());
  for (const CUgraphNode_st *node : tails)
    seen[node->index] = true;
  for (size_t i = graph.nodes.size(); i-- > 0;) // a node depends only on nodes of lower index
    if (seen[i])
      for (const CUgraphNode_st *before : graph.nodes[i]->after)
        seen[before->index] = true;
  return seen;
}

bool unjoined(const Capture &capture) {
  const std::vector<bool> seen = reached(*capture.graph, capture.origin->tails);
  for (CUstream stream : capture.streams)
    for (const CUgraphNode_st *node : stream->tails)
      if (!seen[node->index])
        return true;
  return false;
}

void leave(Capture &capture) {
  for (CUstream stream : capture.streams) {
    stream->capture.reset();
    stream->tails.clear();
  }
  capture.active = false;
  std::erase_if(captures(), [&](const CapturePointer &c) { return c.get() == &capture; });
}

} // namespace

CUresult spoil(Capture &capture, CUresult result) {
  capture.invalid = true;
  return result;
}

CUresult refusedInCapture(World &w) {
  if (threadMode() == CU_STREAM_CAPTURE_MODE_RELAXED)
    return CUDA_SUCCESS;
  CUresult result = CUDA_SUCCESS;
  for (const CapturePointer &c : captures()) {
    const bool mine = c->thread == std::this_thread::get_id() && c->mode != CU_STREAM_CAPTURE_MODE_RELAXED;
    const bool anybody = c->mode == CU_STREAM_CAPTURE_MODE_GLOBAL && threadMode() == CU_STREAM_CAPTURE_MODE_GLOBAL;
    if (mine || anybody)
      result = spoil(*c, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  }
  return result;
}

CUresult addNode(CUstream stream, Work work) {
  Capture &capture = *stream->capture;
  if (capture.invalid)
    return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  auto node = std::make_unique<CUgraphNode_st>();
  node->work = std::make_shared<Work>(std::move(work));
  node->after = stream->tails;
  node->index = capture.graph->nodes.size();
  node->lane = stream->number;
  stream->tails = {node.get()};
  capture.graph->nodes.push_back(std::move(node));
  return CUDA_SUCCESS;
}

CUresult waitCaptured(World &w, CUstream stream, CUevent event) {
  const CapturePointer from = event->capture;
  if (!from || !from->active) // the event was not recorded in this capture
    return stream->capture ? spoil(*stream->capture, CUDA_ERROR_STREAM_CAPTURE_ISOLATION) : CUDA_ERROR_CAPTURED_EVENT;
  if (from->invalid)
    return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  if (stream == stream->context->legacy)
    return spoil(*from, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
  if (stream->capture && stream->capture != from) {
    spoil(*stream->capture, CUDA_SUCCESS);
    return spoil(*from, CUDA_ERROR_STREAM_CAPTURE_MERGE);
  }
  if (!stream->capture) {
    stream->capture = from;
    from->streams.push_back(stream);
  }
  addTails(stream->tails, event->captured);
  return CUDA_SUCCESS;
}

} // namespace cleave::fake

CUresult CUDAAPI cuStreamBeginCapture(CUstream handle, CUstreamCaptureMode mode) {
  CLEAVE_FAKE_CALL(Context);
  const CUstream stream = streamOf(call, handle);
  if (!stream)
    return CUDA_ERROR_INVALID_HANDLE;
  if (mode < CU_STREAM_CAPTURE_MODE_GLOBAL || mode > CU_STREAM_CAPTURE_MODE_RELAXED)
    return CUDA_ERROR_INVALID_VALUE;
  if (stream == stream->context->legacy)
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  if (stream->capture)
    return spoil(*stream->capture, CUDA_ERROR_ILLEGAL_STATE);
  static uint64_t number = 0;
  auto capture = std::make_shared<Capture>();
  capture->id = ++number;
  capture->mode = mode;
  capture->thread = std::this_thread::get_id();
  capture->origin = stream;
  capture->graph = new CUgraph_st;
  capture->streams = {stream};
  stream->capture = capture;
  stream->tails.clear();
  captures().push_back(std::move(capture));
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuStreamEndCapture(CUstream handle, CUgraph *result) {
  CLEAVE_FAKE_CALL(Context);
  const CUstream stream = streamOf(call, handle);
  if (!stream || !result)
    return stream ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_INVALID_HANDLE;
  *result = nullptr;
  const CapturePointer capture = stream->capture;
  if (!capture)
    return CUDA_ERROR_ILLEGAL_STATE;
  if (capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED && capture->thread != std::this_thread::get_id())
    return CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
  if (capture->origin != stream)
    return spoil(*capture, CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
  const CUresult bad = capture->invalid     ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED
                       : unjoined(*capture) ? CUDA_ERROR_STREAM_CAPTURE_UNJOINED
                                            : CUDA_SUCCESS;
  leave(*capture);
  if (bad != CUDA_SUCCESS) {
    call.lock.unlock(); // destructors of nodes' data may call CUDA
    delete capture->graph;
    return bad;
  }
  call.w.graphs.insert(capture->graph);
  *result = capture->graph;
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuStreamIsCapturing(CUstream handle, CUstreamCaptureStatus *status) {
  CLEAVE_FAKE_CALL(Context);
  const CUstream stream = streamOf(call, handle);
  if (!stream || !status)
    return stream ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_INVALID_HANDLE;
  *status = !stream->capture           ? CU_STREAM_CAPTURE_STATUS_NONE
            : stream->capture->invalid ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
                                       : CU_STREAM_CAPTURE_STATUS_ACTIVE;
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuStreamGetCaptureInfo(CUstream handle, CUstreamCaptureStatus *status, cuuint64_t *id, CUgraph *graph,
                                        const CUgraphNode **dependencies, const CUgraphEdgeData **edges,
                                        size_t *count) {
  if (const CUresult result = cuStreamIsCapturing(handle, status); result != CUDA_SUCCESS)
    return result;
  CLEAVE_FAKE_CALL(Context);
  const CUstream stream = streamOf(call, handle);
  if (!stream->capture)
    return CUDA_SUCCESS;
  if (id)
    *id = stream->capture->id;
  if (graph)
    *graph = stream->capture->graph;
  if (dependencies)
    *dependencies = stream->tails.data();
  if (edges)
    *edges = nullptr;
  if (count)
    *count = stream->tails.size();
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode) {
  CLEAVE_FAKE_CALL(Nothing);
  if (!mode || *mode < CU_STREAM_CAPTURE_MODE_GLOBAL || *mode > CU_STREAM_CAPTURE_MODE_RELAXED)
    return CUDA_ERROR_INVALID_VALUE;
  std::swap(*mode, threadMode());
  return CUDA_SUCCESS;
}
