// Groups, and putting work into streams. A group's operations on one communicator become one batch.
#include "tests/fake/nccl/Comm.h"

#include "tests/fake/cuda/Fake.h"

#include <algorithm>
#include <cstdio>

namespace cleave::fake {

namespace {

struct Queued {
  std::shared_ptr<Communicator> c;
  CommOperation op;
  CUstream stream;
};

struct Group {
  int depth = 0;
  std::vector<Queued> queued;
  std::vector<std::function<ncclResult_t()>> jobs;
  ncclResult_t error = ncclSuccess;
};
thread_local Group group;

/// The operations that a stream runs as one piece of work.
struct Batch {
  std::shared_ptr<Communicator> c;
  std::vector<CommOperation> ops;
  std::atomic<int> *counted = nullptr; ///< `pending` or `captured` of c

  ~Batch() {
    if (counted)
      --*counted;
  }

  bool meetFate(const CommOperation &op) const {
    const Fate fate = fateOf(op.kind);
    if (fate.error != ncclSuccess)
      c->fail(fate.error, std::string(nameOf(op.kind)) + ": asked for by CLEAVE_FAKE_NCCL");
    return !fate.hang || c->hang("asked for by CLEAVE_FAKE_NCCL");
  }

  int run() {
    std::unique_lock lock(c->running);
    if (c->closed && !c->aborted) {
      std::fprintf(stderr, "fake NCCL: a graph uses a communicator that was destroyed\n");
      return CUDA_ERROR_LAUNCH_FAILED;
    }
    if (c->aborted)
      return 0;
    std::vector<CommOperation> point;
    for (const CommOperation &op : ops) {
      if (!meetFate(op))
        return 0;
      if (op.kind == Kind::Send || op.kind == Kind::Recv)
        point.push_back(op);
    }
    if (!runPointToPoint(*c, point))
      return 0;
    for (const CommOperation &op : ops)
      if (op.kind != Kind::Send && op.kind != Kind::Recv && !runCollective(*c, op))
        return 0;
    return 0;
  }
};

size_t bytesRead(const Communicator &c, const CommOperation &op) {
  return op.count * elementBytes(op.type) * (op.kind == Kind::ReduceScatter ? c.ranks : 1);
}
size_t bytesWritten(const Communicator &c, const CommOperation &op) {
  return op.count * elementBytes(op.type) * (op.kind == Kind::AllGather ? c.ranks : 1);
}

unsigned long long captureOf(CUstream stream) {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  cuuint64_t id = 0;
  if (cuStreamGetCaptureInfo(stream, &status, &id, nullptr, nullptr, nullptr, nullptr) != CUDA_SUCCESS)
    return 0;
  return status == CU_STREAM_CAPTURE_STATUS_NONE ? 0 : id;
}

/// Keeps the communicator's work in the order of the calls, whatever streams the calls use.
void orderStreams(Communicator &c, CUstream stream, unsigned long long capture) {
  if (!c.event)
    cuEventCreate(&c.event, CU_EVENT_DISABLE_TIMING);
  if (c.used && c.stream != stream && c.capture == capture)
    cuStreamWaitEvent(stream, c.event, 0);
}

/// Makes the communicator's context current for the lifetime of the object.
struct Current {
  explicit Current(CUcontext context) {
    cuCtxGetCurrent(&before);
    cuCtxSetCurrent(context);
  }
  ~Current() { cuCtxSetCurrent(before); }
  CUcontext before = nullptr;
};

ncclResult_t launch(const std::shared_ptr<Communicator> &c, std::vector<CommOperation> ops, CUstream stream) {
  const unsigned long long capture = captureOf(stream);
  orderStreams(*c, stream, capture);
  auto batch = std::make_unique<Batch>();
  batch->c = c;
  batch->ops = std::move(ops);
  std::vector<CleaveFakeRange> ranges;
  for (const CommOperation &op : batch->ops) {
    if (op.in)
      ranges.push_back({op.in, bytesRead(*c, op), 0});
    if (op.out)
      ranges.push_back({op.out, bytesWritten(*c, op), 1});
  }
  batch->counted = capture == 0 ? &c->pending : &c->captured;
  ++*batch->counted;
  const CleaveFakeWork work{batch->ops.size() == 1 ? nameOf(batch->ops[0].kind) : "ncclGroup",
                            [](void *data) { return static_cast<Batch *>(data)->run(); },
                            [](void *data) { delete static_cast<Batch *>(data); },
                            batch.get(),
                            ranges.data(),
                            ranges.size()};
  if (const int bad = cleaveFakeEnqueueWork(stream, &work); bad != 0)
    return refuse(ncclUnhandledCudaError, "the stream takes no work: error " + std::to_string(bad));
  batch.release();
  cuEventRecord(c->event, stream);
  c->stream = stream;
  c->capture = capture;
  c->used = true;
  return ncclSuccess;
}

/// Launches all of a group's operations on one communicator in the first stream, after the earlier work of the other
/// streams and before their later work.
ncclResult_t launchAll(const std::vector<Queued> &queued, const std::shared_ptr<Communicator> &c) {
  std::vector<CommOperation> ops;
  std::vector<CUstream> streams;
  for (const Queued &q : queued)
    if (q.c == c) {
      ops.push_back(q.op);
      if (std::find(streams.begin(), streams.end(), q.stream) == streams.end())
        streams.push_back(q.stream);
    }
  const Current current(c->context);
  CUevent joined = nullptr;
  if (streams.size() > 1)
    cuEventCreate(&joined, CU_EVENT_DISABLE_TIMING);
  for (size_t i = 1; i < streams.size(); ++i) {
    cuEventRecord(joined, streams[i]);
    cuStreamWaitEvent(streams[0], joined, 0);
  }
  const ncclResult_t result = launch(c, std::move(ops), streams[0]);
  for (size_t i = 1; i < streams.size(); ++i)
    cuStreamWaitEvent(streams[i], c->event, 0);
  if (joined)
    cuEventDestroy(joined);
  return result;
}

ncclResult_t runJobs(std::vector<std::function<ncclResult_t()>> jobs) {
  std::vector<ncclResult_t> results(jobs.size(), ncclSuccess);
  std::vector<std::thread> threads;
  for (size_t i = 0; i < jobs.size(); ++i)
    threads.emplace_back([&, i] { results[i] = jobs[i](); });
  for (std::thread &thread : threads)
    thread.join();
  for (ncclResult_t result : results)
    if (result != ncclSuccess)
      return result;
  return ncclSuccess;
}

ncclResult_t flush() {
  Group ended;
  std::swap(ended, group);
  if (ended.error != ncclSuccess)
    return ended.error;
  if (const ncclResult_t bad = runJobs(std::move(ended.jobs)); bad != ncclSuccess)
    return bad;
  std::vector<std::shared_ptr<Communicator>> launched;
  for (const Queued &q : ended.queued)
    if (std::find(launched.begin(), launched.end(), q.c) == launched.end()) {
      launched.push_back(q.c);
      if (const ncclResult_t bad = launchAll(ended.queued, q.c); bad != ncclSuccess)
        return bad;
    }
  return ncclSuccess;
}

ncclResult_t judge(const Communicator &c, const CommOperation &op, CUstream stream) {
  if (elementBytes(op.type) == 0 || op.reduce < 0 || op.reduce > ncclAvg)
    return refuse(ncclInvalidArgument, "no such type or reduction");
  const bool rooted =
      op.kind == Kind::Broadcast || op.kind == Kind::Reduce || op.kind == Kind::Send || op.kind == Kind::Recv;
  if (rooted && (op.peer < 0 || static_cast<uint32_t>(op.peer) >= c.ranks))
    return refuse(ncclInvalidArgument, "no such rank: " + std::to_string(op.peer));
  if (cleaveFakeStreamDevice(stream) != c.device)
    return refuse(ncclInvalidUsage, "the stream is of another device");
  const bool root = static_cast<uint32_t>(op.peer) == c.rank;
  const bool reads = op.kind != Kind::Recv && (op.kind != Kind::Broadcast || root);
  const bool writes = op.kind != Kind::Send && (op.kind != Kind::Reduce || root);
  if (op.count && reads && cleaveFakeDeviceOf(op.in, bytesRead(c, op)) != c.device)
    return refuse(ncclInvalidArgument, std::string(nameOf(op.kind)) + ": what it reads is not in the device's memory");
  if (op.count && writes && cleaveFakeDeviceOf(op.out, bytesWritten(c, op)) != c.device)
    return refuse(ncclInvalidArgument, std::string(nameOf(op.kind)) + ": what it writes is not in the device's memory");
  return ncclSuccess;
}

} // namespace

bool inGroup() { return group.depth > 0; }
void addJob(std::function<ncclResult_t()> job) { group.jobs.push_back(std::move(job)); }

ncclResult_t enqueue(ncclComm_t comm, CommOperation op, cudaStream_t handle) {
  if (!comm)
    return refuse(ncclInvalidArgument, "no communicator");
  const std::shared_ptr<Communicator> c = comm->c;
  auto *stream = reinterpret_cast<CUstream>(handle);
  ncclResult_t bad = c->error;
  if (bad == ncclInProgress)
    bad = refuse(ncclInvalidArgument, "the communicator is used before it is ready");
  if (bad == ncclSuccess && c->finalized)
    bad = refuse(ncclInvalidUsage, "the communicator was finalized");
  if (bad == ncclSuccess)
    bad = judge(*c, op, stream);
  if (bad != ncclSuccess) {
    if (inGroup())
      group.error = bad;
    return bad;
  }
  if (op.kind == Kind::Broadcast && static_cast<uint32_t>(op.peer) != c->rank)
    op.in = nullptr;
  if (op.kind == Kind::Reduce && static_cast<uint32_t>(op.peer) != c->rank)
    op.out = nullptr;
  if (op.count == 0) // nothing to do, and no peer waits for it
    return ncclSuccess;
  if (!inGroup()) {
    const Current current(c->context);
    return launch(c, {op}, stream);
  }
  group.queued.push_back({c, op, stream});
  return ncclSuccess;
}

} // namespace cleave::fake

using namespace cleave::fake;

ncclResult_t ncclGroupStart() {
  if (const ncclResult_t asked = countCall(__func__); asked != ncclSuccess)
    return asked;
  ++group.depth;
  return ncclSuccess;
}

ncclResult_t ncclGroupEnd() {
  if (const ncclResult_t asked = countCall(__func__); asked != ncclSuccess) {
    group = {};
    return asked;
  }
  if (group.depth == 0)
    return refuse(ncclInvalidUsage, "ncclGroupEnd: not in a group call.");
  if (--group.depth > 0)
    return ncclSuccess;
  return flush();
}
