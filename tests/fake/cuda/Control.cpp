// Control functions for tests and the other fakes (Fake.h).
#include "tests/fake/cuda/Capture.h"

using namespace cleave::fake;

void cleaveFakeFail(const char *function, int nth, int code) {
  World &w = world();
  std::unique_lock lock(w.lock);
  w.failures.insert({function, {w.calls[function] + static_cast<uint64_t>(nth), code}});
}

void cleaveFakeReset() {
  World &w = world();
  std::unique_lock lock(w.lock);
  w.failures.clear();
  w.calls.clear();
  w.workDone = 0;
  forgetRaces();
  for (Device &device : w.devices)
    if (device.primary)
      device.primary->error = CUDA_SUCCESS;
}

uint64_t cleaveFakeCalls(const char *function) {
  World &w = world();
  std::unique_lock lock(w.lock);
  const auto found = w.calls.find(function);
  return found == w.calls.end() ? 0 : found->second;
}

size_t cleaveFakeLeaks() {
  World &w = world();
  std::unique_lock lock(w.lock);
  size_t count =
      w.memory.size() + w.streams.size() + w.events.size() + w.graphs.size() + w.executables.size() + w.modules.size();
  for (const auto &[kind, number] : w.others)
    count += static_cast<size_t>(number);
  return count;
}

const char *cleaveFakeLeaksText() {
  World &w = world();
  std::unique_lock lock(w.lock);
  static auto *text = new std::string;
  text->clear();
  const auto say = [&](size_t count, const char *what) {
    if (count)
      *text += (text->empty() ? "" : ", ") + std::to_string(count) + " " + what;
  };
  for (const auto &[address, block] : w.memory)
    say(block.bytes, block.device < 0 ? "bytes of pinned memory" : "bytes of device memory");
  say(w.streams.size(), "streams");
  say(w.events.size(), "events");
  say(w.graphs.size(), "graphs");
  say(w.executables.size(), "graph executables");
  say(w.modules.size(), "modules");
  for (const auto &[kind, number] : w.others)
    say(static_cast<size_t>(number), kind.c_str());
  return text->c_str();
}

int cleaveFakeActivations() {
  std::unique_lock lock(world().lock);
  return world().settings.activations;
}

uint64_t cleaveFakeRaces() {
  std::unique_lock lock(world().lock);
  return raceCount();
}

const char *cleaveFakeRaceText() {
  std::unique_lock lock(world().lock);
  return lastRace().c_str();
}

uint64_t cleaveFakeWorkDone() {
  std::unique_lock lock(world().lock);
  return world().workDone;
}

void cleaveFakeSet(const char *settings) {
  std::unique_lock lock(world().lock);
  applySettings(world(), settings);
}

int cleaveFakeEnqueueWork(void *handle, const CleaveFakeWork *work) {
  Call call("cleaveFakeEnqueueWork", Context);
  if (call.result != CUDA_SUCCESS)
    return call.result;
  const CUstream stream = streamOf(call, static_cast<CUstream>(handle));
  if (!stream)
    return CUDA_ERROR_INVALID_HANDLE;
  struct Owner {
    void (*release)(void *) = nullptr;
    void *data = nullptr;
    ~Owner() {
      if (release)
        release(data);
    }
  };
  auto owner = std::make_shared<Owner>();
  Work w{work->name, [owner, run = work->run, data = work->data] { return static_cast<CUresult>(run(data)); }, {}};
  for (size_t i = 0; i < work->rangeCount; ++i)
    w.ranges.push_back(range(work->ranges[i].begin, work->ranges[i].bytes, work->ranges[i].written != 0));
  const CUresult result = submit(call.w, stream, std::move(w));
  if (result == CUDA_SUCCESS) { // the lock is held, so the worker has not run it yet
    owner->release = work->release;
    owner->data = work->data;
  }
  return result;
}

int cleaveFakeEnqueue(void *stream, void (*work)(void *), void *data) {
  struct Plain {
    void (*work)(void *);
    void *data;
  };
  auto *plain = new Plain{work, data};
  const CleaveFakeWork wrapped{"cleaveFakeEnqueue",
                               [](void *p) {
                                 static_cast<Plain *>(p)->work(static_cast<Plain *>(p)->data);
                                 return 0;
                               },
                               [](void *p) { delete static_cast<Plain *>(p); },
                               plain,
                               nullptr,
                               0};
  const int result = cleaveFakeEnqueueWork(stream, &wrapped);
  if (result != 0)
    delete plain;
  return result;
}

int cleaveFakeCount(const char *function) {
  std::unique_lock lock(world().lock);
  return counted(world(), function);
}

void cleaveFakeObject(const char *kind, int change) {
  std::unique_lock lock(world().lock);
  world().others[kind] += change;
}

int cleaveFakeStreamDevice(void *handle) {
  World &w = world();
  std::unique_lock lock(w.lock);
  auto *stream = static_cast<CUstream>(handle);
  if (!stream || stream == CU_STREAM_LEGACY)
    return currentContext() ? currentContext()->device : -1;
  return w.streams.contains(stream) ? stream->context->device : -1;
}

int cleaveFakeDeviceOf(const void *begin, size_t bytes) {
  World &w = world();
  std::unique_lock lock(w.lock);
  const Block *block = blockOf(w, begin, bytes);
  return block ? block->device : -1;
}

CUresult CUDAAPI cuLaunchHostFunc(CUstream handle, CUhostFn function, void *data) {
  CLEAVE_FAKE_CALL(Context);
  const CUstream stream = streamOf(call, handle);
  if (!stream)
    return CUDA_ERROR_INVALID_HANDLE;
  if (!function)
    return CUDA_ERROR_INVALID_VALUE;
  return submit(call.w, stream,
                {__func__,
                 [=] {
                   function(data);
                   return CUDA_SUCCESS;
                 },
                 {}});
}
