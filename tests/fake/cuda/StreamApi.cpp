// CUDA's functions for streams and events.
#include "tests/fake/cuda/Capture.h"

using namespace cleave::fake;

namespace {

CUresult refusedCapturing(CUstream stream) {
  return stream->capture ? spoil(*stream->capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED) : CUDA_SUCCESS;
}

/// Checks that the host may query the event.
CUresult askable(const Call &call, CUevent event) {
  if (!call.w.events.contains(event))
    return CUDA_ERROR_INVALID_HANDLE;
  if (!event->capture)
    return refusedInCapture(world());
  return event->capture->active ? spoil(*event->capture, CUDA_ERROR_CAPTURED_EVENT) : CUDA_ERROR_CAPTURED_EVENT;
}

} // namespace

CUresult CUDAAPI cuStreamCreateWithPriority(CUstream *result, unsigned flags, int priority) {
  CLEAVE_FAKE_CALL(Context);
  if (!result || flags & ~unsigned{CU_STREAM_NON_BLOCKING})
    return CUDA_ERROR_INVALID_VALUE;
  *result = makeStream(call.w, call.context, flags, priority);
  call.w.streams.insert(*result);
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuStreamCreate(CUstream *result, unsigned flags) {
  return cuStreamCreateWithPriority(result, flags, 0);
}

CUresult CUDAAPI cuStreamDestroy(CUstream stream) {
  CLEAVE_FAKE_CALL(Started);
  if (!call.w.streams.contains(stream))
    return CUDA_ERROR_INVALID_HANDLE;
  if (const CUresult refused = refusedCapturing(stream); refused != CUDA_SUCCESS)
    return refused;
  call.w.streams.erase(stream);
  call.w.draining.insert(stream);
  stream->closing = true;
  stream->wake.notify_all();
  return stream->context->error;
}

CUresult CUDAAPI cuStreamSynchronize(CUstream handle) {
  CLEAVE_FAKE_CALL(Context);
  const CUstream stream = streamOf(call, handle);
  if (!stream)
    return CUDA_ERROR_INVALID_HANDLE;
  if (const CUresult refused = refusedCapturing(stream); refused != CUDA_SUCCESS)
    return refused;
  if (const CUresult refused = refusedInCapture(call.w); refused != CUDA_SUCCESS)
    return refused;
  const CUcontext context = stream->context;
  await(call, mark(call.w, stream));
  return context->error;
}

CUresult CUDAAPI cuStreamQuery(CUstream handle) {
  CLEAVE_FAKE_CALL(Context);
  const CUstream stream = streamOf(call, handle);
  if (!stream)
    return CUDA_ERROR_INVALID_HANDLE;
  if (const CUresult refused = refusedCapturing(stream); refused != CUDA_SUCCESS)
    return refused;
  if (const CUresult refused = refusedInCapture(call.w); refused != CUDA_SUCCESS)
    return refused;
  if (stream->busy || !stream->queue.empty())
    return CUDA_ERROR_NOT_READY;
  if (call.w.settings.race)
    races().hostSaw(stream->clock);
  return stream->context->error;
}

CUresult CUDAAPI cuStreamWaitEvent(CUstream handle, CUevent event, unsigned flags) {
  CLEAVE_FAKE_CALL(Context);
  const CUstream stream = streamOf(call, handle);
  if (!stream || !call.w.events.contains(event))
    return CUDA_ERROR_INVALID_HANDLE;
  if (flags != CU_EVENT_WAIT_DEFAULT)
    return CUDA_ERROR_NOT_SUPPORTED;
  if (stream->capture && stream->capture->invalid)
    return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  if (stream->capture || event->capture)
    return waitCaptured(call.w, stream, event);
  if (!event->latest) // never recorded: returns immediately
    return CUDA_SUCCESS;
  join(stream->clock, event->latest->clock);
  push(stream, {.wait = event->latest});
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuEventCreate(CUevent *result, unsigned flags) {
  CLEAVE_FAKE_CALL(Context);
  if (!result || flags & ~unsigned{CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING})
    return CUDA_ERROR_INVALID_VALUE;
  *result = new CUevent_st;
  (*result)->context = call.context;
  (*result)->flags = flags;
  call.w.events.insert(*result);
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuEventDestroy(CUevent event) {
  CLEAVE_FAKE_CALL(Started);
  if (!call.w.events.erase(event))
    return CUDA_ERROR_INVALID_HANDLE;
  const CUcontext context = event->context;
  delete event; // streams that wait for the event hold the moment itself
  return context->error;
}

CUresult CUDAAPI cuEventRecord(CUevent event, CUstream handle) {
  CLEAVE_FAKE_CALL(Context);
  const CUstream stream = streamOf(call, handle);
  if (!stream || !call.w.events.contains(event) || stream->context != event->context)
    return CUDA_ERROR_INVALID_HANDLE;
  if (!stream->capture) {
    event->capture.reset();
    event->latest = mark(call.w, stream);
    return CUDA_SUCCESS;
  }
  if (stream->capture->invalid)
    return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  event->capture = stream->capture;
  event->captured = stream->tails;
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuEventRecordWithFlags(CUevent event, CUstream stream, unsigned flags) {
  return flags == CU_EVENT_RECORD_DEFAULT ? cuEventRecord(event, stream) : CUDA_ERROR_NOT_SUPPORTED;
}

CUresult CUDAAPI cuEventQuery(CUevent event) {
  CLEAVE_FAKE_CALL(Context);
  if (const CUresult refused = askable(call, event); refused != CUDA_SUCCESS)
    return refused;
  if (!event->latest)
    return CUDA_SUCCESS;
  if (!event->latest->done)
    return CUDA_ERROR_NOT_READY;
  await(call, event->latest);
  return event->context->error;
}

CUresult CUDAAPI cuEventSynchronize(CUevent event) {
  CLEAVE_FAKE_CALL(Context);
  if (const CUresult refused = askable(call, event); refused != CUDA_SUCCESS)
    return refused;
  const CUcontext context = event->context;
  if (const MomentPointer latest = event->latest)
    await(call, latest);
  return context->error;
}

CUresult CUDAAPI cuEventElapsedTime(float *milliseconds, CUevent start, CUevent end) {
  CLEAVE_FAKE_CALL(Context);
  for (CUevent event : {start, end})
    if (!call.w.events.contains(event) || event->flags & CU_EVENT_DISABLE_TIMING || !(event->latest || event->capture))
      return CUDA_ERROR_INVALID_HANDLE;
  if (!milliseconds)
    return CUDA_ERROR_INVALID_VALUE;
  if (start->context != end->context)
    return CUDA_ERROR_INVALID_HANDLE;
  if (start->capture || end->capture)
    return CUDA_ERROR_CAPTURED_EVENT;
  if (!start->latest->done || !end->latest->done)
    return CUDA_ERROR_NOT_READY;
  *milliseconds = std::chrono::duration<float, std::milli>(end->latest->when - start->latest->when).count();
  return CUDA_SUCCESS;
}

// The name before CUDA 13; a program that looks up symbols may use it.
#undef cuEventElapsedTime
CLEAVE_FAKE_EXPORT CUresult CUDAAPI cuEventElapsedTime(float *milliseconds, CUevent start, CUevent end) {
  return cuEventElapsedTime_v2(milliseconds, start, end);
}
