// The queues of streams and the threads that run them.
#include "tests/fake/cuda/Stream.h"

#include "tests/fake/cuda/Capture.h"

#include <cstdio>
#include <thread>

namespace cleave::fake {

namespace {

void complete(World &w, const MomentPointer &moment) {
  moment->done = true;
  moment->when = std::chrono::steady_clock::now();
  for (CUstream stream : moment->waiting)
    stream->wake.notify_all();
  moment->waiting.clear();
  w.progress.notify_all();
}

void waitFor(std::unique_lock<std::mutex> &lock, CUstream stream, const MomentPointer &moment) {
  if (moment->done)
    return;
  moment->waiting.push_back(stream);
  stream->wake.wait(lock, [&] { return moment->done; });
}

/// A stream's thread. It ends when the stream is destroyed and all its work is done.
void serve(CUstream stream) {
  World &w = world();
  std::unique_lock lock(w.lock);
  for (;;) {
    stream->wake.wait(lock, [&] { return !stream->queue.empty() || stream->closing; });
    if (stream->queue.empty())
      break;
    Item item = std::move(stream->queue.front());
    stream->queue.pop_front();
    stream->busy = true;
    if (item.wait)
      waitFor(lock, stream, item.wait);
    if (item.work) {
      perform(w, lock, stream->context, *item.work);
      lock.unlock();
      item.work.reset(); // destructors of the work's data may call CUDA
      lock.lock();
    }
    if (item.record)
      complete(w, item.record);
    stream->busy = false;
  }
  w.draining.erase(stream);
  lock.unlock();
  delete stream;
}

/// The null stream runs after all earlier work of streams without CU_STREAM_NON_BLOCKING, and their later work runs
/// after it.
void joinLegacy(World &w, CUstream stream, bool entering) {
  const CUstream legacy = stream->context->legacy;
  if (stream != legacy && entering && !(stream->flags & CU_STREAM_NON_BLOCKING)) {
    if (legacy->legacySeen && stream->legacySeen != legacy->legacySeen) {
      stream->legacySeen = legacy->legacySeen;
      join(stream->clock, stream->legacySeen->clock);
      push(stream, {.wait = stream->legacySeen});
    }
    return;
  }
  if (stream != legacy)
    return;
  if (!entering) {
    legacy->legacySeen = mark(w, legacy);
    return;
  }
  for (CUstream other : w.streams)
    if (other->context == stream->context && !(other->flags & CU_STREAM_NON_BLOCKING)) {
      const MomentPointer moment = mark(w, other);
      join(legacy->clock, moment->clock);
      push(legacy, {.wait = moment});
    }
}

bool blockingIsCaptured(const World &w, CUcontext context) {
  for (CUstream other : w.streams)
    if (other->context == context && other->capture && !(other->flags & CU_STREAM_NON_BLOCKING)) {
      other->capture->invalid = true;
      return true;
    }
  return false;
}

} // namespace

CUstream streamOf(const Call &call, CUstream handle) {
  if (handle == nullptr || handle == CU_STREAM_LEGACY)
    return call.context ? call.context->legacy : nullptr;
  return call.w.streams.contains(handle) ? handle : nullptr;
}

CUstream makeStream(World &w, CUcontext context, unsigned flags, int priority) {
  static int number = 0;
  auto *stream = new CUstream_st;
  stream->context = context;
  stream->flags = flags;
  stream->priority = priority;
  stream->number = ++number;
  std::thread(serve, stream).detach();
  return stream;
}

CUresult submit(World &w, CUstream stream, Work work) {
  if (stream->capture)
    return addNode(stream, std::move(work));
  if (stream == stream->context->legacy && blockingIsCaptured(w, stream->context))
    return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
  joinLegacy(w, stream, true);
  if (w.settings.race) {
    join(stream->clock, races().host);
    ++stream->clock[stream->number];
    const std::string race = races().touch(work.name, stream->number, stream->clock, work.ranges);
    if (!race.empty() && reportRace(race))
      stream->context->error = CUDA_ERROR_LAUNCH_FAILED;
  }
  push(stream, {.work = std::make_shared<Work>(std::move(work))});
  joinLegacy(w, stream, false);
  return CUDA_SUCCESS;
}

void push(CUstream stream, Item item) {
  stream->queue.push_back(std::move(item));
  stream->wake.notify_all();
}

MomentPointer mark(World &w, CUstream stream) {
  auto moment = std::make_shared<Moment>();
  moment->clock = stream->clock;
  push(stream, {.record = moment});
  return moment;
}

void await(Call &call, const MomentPointer &moment) {
  call.w.progress.wait(call.lock, [&] { return moment->done; });
  if (call.w.settings.race)
    races().hostSaw(moment->clock);
}

void awaitContext(Call &call, CUcontext context) {
  std::vector<MomentPointer> moments = {mark(call.w, context->legacy)};
  for (const auto *streams : {&call.w.streams, &call.w.draining})
    for (CUstream stream : *streams)
      if (stream->context == context && !stream->capture)
        moments.push_back(mark(call.w, stream));
  for (const MomentPointer &moment : moments)
    await(call, moment);
}

void perform(World &w, std::unique_lock<std::mutex> &lock, CUcontext context, const Work &work) {
  if (context->error != CUDA_SUCCESS) // after an error nothing runs any more
    return;
  auto result = static_cast<CUresult>(counted(w, "work"));
  ++w.workDone;
  lock.unlock();
  dawdle();
  if (result == CUDA_SUCCESS)
    result = work.run();
  lock.lock();
  if (result == CUDA_SUCCESS || context->error != CUDA_SUCCESS)
    return;
  std::fprintf(stderr, "fake CUDA: %s fails with %d\n", work.name, static_cast<int>(result));
  context->error = result;
}

} // namespace cleave::fake
