// NCCL between threads and between processes: results, operations that never end, abort, and ranks that have ended.
#include "tests/fake/tests/Ranks.h"

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <fcntl.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

using namespace cleave::fake;

namespace {

struct Quiet {
  Quiet() {
    cuInit(0);
    cleaveFakeReset();
    cleaveFakeNcclSet("");
  }
  ~Quiet() {
    CHECK(std::string(cleaveFakeLeaksText()) == "");
    cleaveFakeNcclSet("");
    cleaveFakeReset();
  }
};

/// Starts this program again to run the hidden test `name` as a rank.
pid_t spawn(const char *name, const std::string &id, int ranks, int rank, const char *host = nullptr) {
  const pid_t pid = fork();
  if (pid != 0)
    return pid;
  setenv("CLEAVE_FAKE_ID", id.c_str(), 1);
  setenv("CLEAVE_FAKE_RANK", (std::to_string(ranks) + " " + std::to_string(rank)).c_str(), 1);
  if (host)
    setenv("NCCL_HOSTID", host, 1);
  const int null = open("/dev/null", O_WRONLY);
  dup2(null, 1);
  execl("/proc/self/exe", "fake_tests", name, static_cast<char *>(nullptr));
  _exit(127);
}

int statusOf(pid_t pid) {
  int status = 0;
  waitpid(pid, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

struct Given {
  std::string id;
  int ranks = 0, rank = 0;
  Given() {
    id = std::getenv("CLEAVE_FAKE_ID");
    REQUIRE(std::sscanf(std::getenv("CLEAVE_FAKE_RANK"), "%d %d", &ranks, &rank) == 2);
  }
};

template <typename F> bool within(int milliseconds, F done) {
  for (int i = 0; i < milliseconds; ++i) {
    if (done())
      return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return done();
}

CUdeviceptr allocate(size_t bytes) {
  CUdeviceptr at = 0;
  cuMemAlloc(&at, bytes);
  cuMemsetD8Async(at, 0, bytes, nullptr);
  cuCtxSynchronize();
  return at;
}

ncclResult_t reduce(Rank &r, CUdeviceptr at, size_t count) {
  return ncclAllReduce(reinterpret_cast<void *>(at), reinterpret_cast<void *>(at), count, ncclFloat32, ncclSum, r.comm,
                       r.onStream());
}

void abortAndFree(Rank &r, CUdeviceptr at) {
  r.expect(ncclCommAbort(r.comm) == ncclSuccess, "abort");
  r.comm = nullptr;
  r.expect(cuStreamSynchronize(r.stream) == CUDA_SUCCESS, "the stream goes on");
  cuMemFree(at);
}

} // namespace

TEST_CASE("fake: ranks as threads") {
  for (int ranks : {1, 2, 4}) {
    Quiet quiet;
    runThreads(ranks, exercise);
  }
}

TEST_CASE("fake: ranks as threads, streams in any order") {
  Quiet quiet;
  cleaveFakeSet("shuffle=11");
  runThreads(2, exercise);
  cleaveFakeSet("shuffle=0");
}

TEST_CASE("fake worker: exercise", "[.]") {
  const Given given;
  REQUIRE_CUDA(cuInit(0));
  Rank rank(given.id, given.ranks, given.rank);
  REQUIRE(rank.failed == "");
  exercise(rank);
  CHECK(rank.failed == "");
}

TEST_CASE("fake: ranks as processes") {
  Quiet quiet;
  for (int ranks : {1, 2, 4}) {
    const std::string id = newId();
    std::vector<pid_t> pids;
    for (int r = 0; r < ranks; ++r)
      pids.push_back(spawn("fake worker: exercise", id, ranks, r));
    for (pid_t pid : pids)
      CHECK(statusOf(pid) == 0);
    CHECK(access(("/dev/shm/" + id).c_str(), F_OK) != 0);
  }
}

TEST_CASE("fake worker: same device", "[.]") {
  const Given given;
  REQUIRE_CUDA(cuInit(0));
  CUcontext context = nullptr;
  REQUIRE_CUDA(cuDevicePrimaryCtxRetain(&context, 0));
  cuCtxSetCurrent(context);
  ncclComm_t comm = nullptr;
  const ncclResult_t result = ncclCommInitRank(&comm, given.ranks, idOf(given.id), given.rank);
  const std::string why = ncclGetLastError(nullptr);
  if (result == ncclInvalidUsage && why.starts_with("Duplicate GPU detected"))
    _exit(5);
  _exit(result == ncclSuccess ? 0 : 1);
}

TEST_CASE("fake: two ranks on one device are refused unless they say they are on two hosts") {
  Quiet quiet;
  std::string id = newId();
  pid_t a = spawn("fake worker: same device", id, 2, 0), b = spawn("fake worker: same device", id, 2, 1);
  CHECK(statusOf(a) == 5);
  CHECK(statusOf(b) == 5);
  id = newId();
  a = spawn("fake worker: same device", id, 2, 0, "one"), b = spawn("fake worker: same device", id, 2, 1, "two");
  CHECK(statusOf(a) == 0);
  CHECK(statusOf(b) == 0);
}

TEST_CASE("fake worker: vanish", "[.]") {
  const Given given;
  REQUIRE_CUDA(cuInit(0));
  Rank rank(given.id, given.ranks, given.rank);
  raise(SIGKILL);
}

TEST_CASE("fake: a rank whose process is gone is an asynchronous error, and abort ends what waits for it") {
  Quiet quiet;
  const std::string id = newId();
  const pid_t pid = spawn("fake worker: vanish", id, 2, 1);
  Rank rank(id, 2, 0);
  REQUIRE(rank.failed == "");
  const CUdeviceptr at = allocate(400);
  CHECK_NCCL(reduce(rank, at, 100));
  CHECK(within(5000, [&] { return rank.asyncError() == ncclRemoteError; }));
  CHECK(cuStreamQuery(rank.stream) == CUDA_ERROR_NOT_READY);
  CHECK(reduce(rank, at, 100) == ncclRemoteError);
  CHECK(std::string(ncclGetLastError(rank.comm)).find("rank 1 is gone") != std::string::npos);
  abortAndFree(rank, at);
  CHECK(rank.failed == "");
  CHECK(statusOf(pid) == 1000 + SIGKILL);
}

TEST_CASE("fake: ranks that do not agree wait for each other until they are aborted") {
  Quiet quiet;
  runThreads(2, [](Rank &r) {
    const CUdeviceptr at = allocate(400);
    r.expect(reduce(r, at, r.rank == 0 ? 100 : 50) == ncclSuccess, "reduce");
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    r.expect(cuStreamQuery(r.stream) == CUDA_ERROR_NOT_READY, "they wait");
    r.expect(r.asyncError() == ncclSuccess, "nobody notices");
    abortAndFree(r, at);
  });
}

TEST_CASE("fake: operations that fail or hang when a test wants it") {
  Quiet quiet;
  cleaveFakeNcclSet("async=AllReduce:3:2"); // of two ranks: the second all-reduce of rank 0 or of rank 1
  runThreads(2, [](Rank &r) {
    const CUdeviceptr at = allocate(400);
    r.expect(reduce(r, at, 100) == ncclSuccess, "first");
    r.wait();
    r.expect(reduce(r, at, 100) == ncclSuccess, "second");
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    r.expect(cuStreamQuery(r.stream) == CUDA_ERROR_NOT_READY, "it does not end");
    abortAndFree(r, at);
  });
  cleaveFakeNcclSet("hang=AllReduce:1,fail=ncclAllReduce:2:5");
  runThreads(1, [](Rank &r) {
    const CUdeviceptr at = allocate(400);
    r.expect(reduce(r, at, 100) == ncclSuccess, "hangs");
    r.expect(reduce(r, at, 100) == ncclInvalidUsage, "fails");
    r.expect(!within(20, [&] { return cuStreamQuery(r.stream) == CUDA_SUCCESS; }), "it does not end");
    abortAndFree(r, at);
  });
}

TEST_CASE("fake: collectives in a graph") {
  Quiet quiet;
  cleaveFakeSet("shuffle=2");
  runThreads(2, [](Rank &r) {
    CUstream other = nullptr;
    CUevent fork = nullptr, join = nullptr;
    CUgraph graph = nullptr;
    CUgraphExec launchable = nullptr;
    cuStreamCreateWithPriority(&other, CU_STREAM_NON_BLOCKING, 0);
    cuEventCreate(&fork, CU_EVENT_DISABLE_TIMING);
    cuEventCreate(&join, CU_EVENT_DISABLE_TIMING);
    const CUdeviceptr a = allocate(400), b = allocate(400);
    cuMemsetD32Async(a, 0x3f800000, 100, r.stream); // 1.0
    cuMemsetD32Async(b, 0x3f800000, 100, r.stream);
    r.wait();
    r.expect(cuStreamBeginCapture(r.stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL) == CUDA_SUCCESS, "begin");
    cuEventRecord(fork, r.stream);
    cuStreamWaitEvent(other, fork, 0);
    r.expect(reduce(r, a, 100) == ncclSuccess, "captured");
    ncclAllReduce(reinterpret_cast<void *>(b), reinterpret_cast<void *>(b), 100, ncclFloat32, ncclSum, r.comm,
                  reinterpret_cast<cudaStream_t>(other));
    cuEventRecord(join, other);
    cuStreamWaitEvent(r.stream, join, 0);
    r.expect(cuStreamEndCapture(r.stream, &graph) == CUDA_SUCCESS, "end");
    r.expect(cuGraphInstantiate(&launchable, graph, 0) == CUDA_SUCCESS, "instantiate");
    for (int i = 0; i < 3; ++i)
      cuGraphLaunch(launchable, r.stream);
    r.wait();
    for (CUdeviceptr at : {a, b}) {
      float value = 0;
      cuMemcpyDtoH(&value, at + 396, 4);
      r.expect(value == 8, "doubled three times");
      cuMemFree(at);
    }
    cuGraphExecDestroy(launchable);
    cuGraphDestroy(graph);
    cuEventDestroy(fork);
    cuEventDestroy(join);
    cuStreamDestroy(other);
  });
  cleaveFakeSet("shuffle=0");
}

TEST_CASE("fake: a communicator that begins beside its caller, and all ranks from one thread") {
  Quiet quiet;
  CUcontext contexts[2];
  for (int d = 0; d < 2; ++d)
    REQUIRE_CUDA(cuDevicePrimaryCtxRetain(&contexts[d], d));
  ncclComm_t comms[2] = {};
  const std::string id = newId();
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  cuCtxSetCurrent(contexts[0]);
  CHECK(ncclCommInitRankConfig(&comms[0], 2, idOf(id), 0, &config) == ncclInProgress);
  ncclResult_t state = ncclSuccess;
  CHECK_NCCL(ncclCommGetAsyncError(comms[0], &state));
  CHECK(state == ncclInProgress);
  cuCtxSetCurrent(contexts[1]);
  CHECK_NCCL(ncclCommInitRank(&comms[1], 2, idOf(id), 1));
  CHECK(within(2000, [&] { return ncclCommGetAsyncError(comms[0], &state) == ncclSuccess && state == ncclSuccess; }));
  for (ncclComm_t comm : comms)
    CHECK_NCCL(ncclCommDestroy(comm));
  CHECK(ncclCommInitRankConfig(&comms[0], 2, idOf(newId()), 0, &config) == ncclInProgress);
  CHECK_NCCL(ncclCommAbort(comms[0])); // rank 1 of this communicator never comes
  CHECK_NCCL(ncclCommInitAll(comms, 2, nullptr));
  for (ncclComm_t comm : comms) {
    CHECK_NCCL(ncclCommFinalize(comm));
    CHECK_NCCL(ncclCommDestroy(comm));
  }
  for (int d = 0; d < 2; ++d) {
    cuDevicePrimaryCtxRelease(d);
    cuDevicePrimaryCtxRelease(d); // ncclCommInitAll retains one reference
  }
  cuCtxSetCurrent(nullptr);
}
