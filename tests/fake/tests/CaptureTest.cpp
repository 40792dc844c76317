// Capture: the order of nodes, refused calls, and the behaviour of graphs.
#include "tests/fake/tests/Support.h"

#include <atomic>
#include <thread>

using namespace cleave::fake;

namespace {

/// Ends a capture and instantiates its graph.
struct Graph {
  explicit Graph(CUstream stream) {
    REQUIRE_CUDA(cuStreamEndCapture(stream, &graph));
    REQUIRE_CUDA(cuGraphInstantiate(&launchable, graph, 0));
  }
  ~Graph() {
    cuGraphExecDestroy(launchable);
    cuGraphDestroy(graph);
  }
  Graph(const Graph &) = delete;
  size_t nodes() const {
    size_t count = 0;
    CHECK_CUDA(cuGraphGetNodes(graph, nullptr, &count));
    return count;
  }
  CUgraph graph = nullptr;
  CUgraphExec launchable = nullptr;
};

void begin(CUstream stream, CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_THREAD_LOCAL) {
  REQUIRE_CUDA(cuStreamBeginCapture(stream, mode));
}

/// Checks that the capture has become invalid.
void checkSpoilt(CUstream stream, CUresult expected = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED) {
  CUgraph graph = nullptr;
  CHECK(cuStreamEndCapture(stream, &graph) == expected);
  CHECK(graph == nullptr);
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_ACTIVE;
  CHECK_CUDA(cuStreamIsCapturing(stream, &status));
  CHECK(status == CU_STREAM_CAPTURE_STATUS_NONE);
}

} // namespace

TEST_CASE("fake: nothing runs while it is captured, and everything at every launch") {
  Gpu gpu("shuffle=4");
  Stream stream;
  Array<int> a(4), b(4);
  CHECK_CUDA(cuMemsetD32Async(a.at, 1, 4, stream));
  stream.wait();
  begin(stream);
  CHECK_CUDA(cuMemcpyDtoDAsync(b.at, a.at, 16, stream));
  CHECK_CUDA(cuMemsetD32Async(a.at, 2, 4, stream));
  Graph graph(stream);
  CHECK(graph.nodes() == 2);
  CHECK(b.read()[0] == -1);
  CHECK_CUDA(cuGraphUpload(graph.launchable, stream));
  CHECK_CUDA(cuGraphLaunch(graph.launchable, stream));
  stream.wait();
  CHECK((a.read()[0] == 2 && b.read()[0] == 1));
  CHECK_CUDA(cuGraphLaunch(graph.launchable, stream));
  stream.wait();
  CHECK(b.read()[0] == 2);
}

TEST_CASE("fake: a graph keeps the order that events made between streams, and no other") {
  Gpu gpu("shuffle=4");
  Stream main, side;
  Event fork, join;
  Log log;
  begin(main);
  log.put(main, 0);
  CHECK_CUDA(cuEventRecord(fork, main));
  CHECK_CUDA(cuStreamWaitEvent(side, fork, 0));
  log.put(main, 1);
  log.put(side, 10);
  log.put(main, 2);
  CHECK_CUDA(cuEventRecord(join, side));
  CHECK_CUDA(cuStreamWaitEvent(main, join, 0));
  log.put(main, 3);
  Graph graph(main);
  CHECK(graph.nodes() == 5);
  bool sideFirst = false, sideLater = false;
  for (int i = 0; i < 60; ++i) {
    log.numbers.clear();
    CHECK_CUDA(cuGraphLaunch(graph.launchable, main));
    main.wait();
    REQUIRE(log.numbers.size() == 5);
    CHECK((log.numbers.front() == 0 && log.numbers.back() == 3));
    const auto at = [&](int n) { return std::find(log.numbers.begin(), log.numbers.end(), n); };
    CHECK(at(1) < at(2));
    (at(10) < at(1) ? sideFirst : sideLater) = true;
  }
  CHECK(sideFirst);
  CHECK(sideLater);
  log.put(side, 99); // the stream is no longer captured
  side.wait();
  CHECK(log.numbers.back() == 99);
}

TEST_CASE("fake: branches of a graph run side by side") {
  Gpu gpu;
  Stream main, side;
  Event fork, join;
  Gate gate;
  begin(main);
  CHECK_CUDA(cuEventRecord(fork, main));
  CHECK_CUDA(cuStreamWaitEvent(side, fork, 0));
  Gate::put(main, gate);
  REQUIRE(cleaveFakeEnqueue(side, Gate::unlock, &gate) == 0);
  CHECK_CUDA(cuEventRecord(join, side));
  CHECK_CUDA(cuStreamWaitEvent(main, join, 0));
  Graph graph(main);
  CHECK_CUDA(cuGraphLaunch(graph.launchable, main));
  main.wait(); // the branch of `side` opens the gate of the other branch
}

TEST_CASE("fake: calls that a capture does not bear") {
  Gpu gpu;
  Stream stream, other;
  Event event, outside;
  CUdeviceptr at = 0;
  CHECK_CUDA(cuEventRecord(outside, other));
  SECTION("memory, globally") {
    begin(stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
    CHECK(cuMemAlloc(&at, 16) == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    CHECK(cuMemsetD8Async(at, 0, 0, stream) == CUDA_SUCCESS); // of zero bytes
    checkSpoilt(stream);
  }
  SECTION("memory from another thread") {
    begin(stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
    CUresult result = CUDA_SUCCESS;
    std::thread([&] {
      cuCtxSetCurrent(gpu.context);
      result = cuMemAlloc(&at, 16);
    }).join();
    CHECK(result == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    checkSpoilt(stream);
  }
  SECTION("memory from another thread, captured by the thread") {
    begin(stream);
    CUresult result = CUDA_SUCCESS;
    std::thread([&] {
      cuCtxSetCurrent(gpu.context);
      result = cuMemAlloc(&at, 16);
    }).join();
    CHECK(result == CUDA_SUCCESS);
    Graph graph(stream);
    CHECK(graph.nodes() == 0);
    CHECK_CUDA(cuMemFree(at));
  }
  SECTION("memory, relaxed") {
    begin(stream, CU_STREAM_CAPTURE_MODE_RELAXED);
    CHECK_CUDA(cuMemAlloc(&at, 16));
    CHECK_CUDA(cuMemFree(at));
    Graph graph(stream);
  }
  SECTION("waiting for the stream") {
    begin(stream, CU_STREAM_CAPTURE_MODE_RELAXED);
    CHECK(cuStreamSynchronize(stream) == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    CHECK(cuEventRecord(event, stream) == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    checkSpoilt(stream);
  }
  SECTION("waiting for all") {
    begin(stream, CU_STREAM_CAPTURE_MODE_RELAXED);
    CHECK(cuCtxSynchronize() == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    checkSpoilt(stream);
  }
  SECTION("asking for a captured event") {
    begin(stream, CU_STREAM_CAPTURE_MODE_RELAXED);
    CHECK_CUDA(cuEventRecord(event, stream));
    CHECK(cuEventQuery(event) == CUDA_ERROR_CAPTURED_EVENT);
    checkSpoilt(stream);
    CHECK(cuEventSynchronize(event) == CUDA_ERROR_CAPTURED_EVENT);
    CHECK_CUDA(cuEventRecord(event, stream));
    CHECK_CUDA(cuEventSynchronize(event));
  }
  SECTION("memory that is not pinned") {
    Array<int> a(4);
    int host[4] = {};
    begin(stream);
    CHECK(cuMemcpyHtoDAsync(a.at, host, 16, stream) == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    checkSpoilt(stream);
  }
  SECTION("an event from outside") {
    begin(stream);
    CHECK(cuStreamWaitEvent(stream, outside, 0) == CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
    checkSpoilt(stream);
  }
  SECTION("two captures that meet") {
    begin(stream);
    begin(other);
    CHECK_CUDA(cuEventRecord(event, stream));
    CHECK(cuStreamWaitEvent(other, event, 0) == CUDA_ERROR_STREAM_CAPTURE_MERGE);
    checkSpoilt(stream);
    checkSpoilt(other);
  }
}

TEST_CASE("fake: captures that end badly") {
  Gpu gpu;
  Stream stream, side, blocking(CU_STREAM_DEFAULT);
  Event event;
  Log log;
  CUgraph graph = nullptr;
  CHECK(cuStreamEndCapture(stream, &graph) == CUDA_ERROR_ILLEGAL_STATE);
  CHECK(cuStreamBeginCapture(nullptr, CU_STREAM_CAPTURE_MODE_RELAXED) == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  SECTION("a stream that did not come back") {
    begin(stream);
    CHECK_CUDA(cuEventRecord(event, stream));
    CHECK_CUDA(cuStreamWaitEvent(side, event, 0));
    log.put(side, 1);
    checkSpoilt(stream, CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
    log.put(side, 2);
    side.wait();
    CHECK(log.numbers == std::vector<int>{2});
  }
  SECTION("in another stream") {
    begin(stream);
    CHECK_CUDA(cuEventRecord(event, stream));
    CHECK_CUDA(cuStreamWaitEvent(side, event, 0));
    CHECK(cuStreamEndCapture(side, &graph) == CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
    checkSpoilt(stream);
  }
  SECTION("in another thread") {
    begin(stream);
    CUresult result = CUDA_SUCCESS;
    std::thread([&] {
      cuCtxSetCurrent(gpu.context);
      result = cuStreamEndCapture(stream, &graph);
    }).join();
    CHECK(result == CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
    Graph ended(stream);
  }
  SECTION("twice") {
    begin(stream);
    CHECK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED) == CUDA_ERROR_ILLEGAL_STATE);
    checkSpoilt(stream);
  }
  SECTION("the null stream meanwhile") {
    begin(blocking, CU_STREAM_CAPTURE_MODE_RELAXED);
    Array<int> a(4);
    CHECK(cuMemsetD8Async(a.at, 0, 16, nullptr) == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
    checkSpoilt(blocking);
  }
}

TEST_CASE("fake: graphs whose branches touch the same bytes are races") {
  Gpu gpu("race=1");
  Stream main, side;
  Event fork, join;
  Array<int> a(4);
  begin(main);
  CHECK_CUDA(cuEventRecord(fork, main));
  CHECK_CUDA(cuStreamWaitEvent(side, fork, 0));
  Gate inside, outside; // an order that CUDA does not know about
  CHECK_CUDA(cuMemsetD32Async(a.at, 1, 4, main));
  inside.order(main, side);
  CHECK_CUDA(cuMemsetD32Async(a.at + 8, 1, 2, side));
  CHECK_CUDA(cuEventRecord(join, side));
  CHECK_CUDA(cuStreamWaitEvent(main, join, 0));
  Graph graph(main);
  CHECK(cleaveFakeRaces() == 1);
  CHECK_CUDA(cuGraphLaunch(graph.launchable, main));
  outside.order(main, side);
  CHECK_CUDA(cuMemsetD32Async(a.at, 1, 4, side));
  CHECK(cleaveFakeRaces() == 2);
  main.wait();
  side.wait();
}

TEST_CASE("fake: memory that was freed before its graph runs is an illegal address") {
  Gpu gpu;
  Stream stream;
  auto a = std::make_unique<Array<int>>(4);
  begin(stream);
  CHECK_CUDA(cuMemsetD32Async(a->at, 1, 4, stream));
  Graph graph(stream);
  a.reset();
  CHECK_CUDA(cuGraphLaunch(graph.launchable, stream));
  CHECK(cuStreamSynchronize(stream) == CUDA_ERROR_ILLEGAL_ADDRESS);
  cleaveFakeReset();
}
