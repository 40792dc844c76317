// Ranks, and the operations that all of them run.
#include "tests/fake/tests/Ranks.h"

#include <algorithm>
#include <numeric>
#include <thread>

namespace cleave::fake {

ncclUniqueId idOf(const std::string &text) {
  ncclUniqueId id{};
  text.copy(id.internal, sizeof id.internal - 1);
  return id;
}

std::string newId() {
  ncclUniqueId id;
  REQUIRE_NCCL(ncclGetUniqueId(&id));
  return id.internal;
}

Rank::Rank(const std::string &id, int ranks, int rank) : ranks(ranks), rank(rank) {
  expect(cuDevicePrimaryCtxRetain(&context, rank) == CUDA_SUCCESS, "context");
  cuCtxSetCurrent(context);
  expect(cuStreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, 0) == CUDA_SUCCESS, "stream");
  expect(ncclCommInitRank(&comm, ranks, idOf(id), rank) == ncclSuccess, "ncclCommInitRank");
}

Rank::~Rank() {
  if (comm)
    ncclCommDestroy(comm);
  cuStreamDestroy(stream);
  cuCtxSetCurrent(nullptr);
  cuDevicePrimaryCtxRelease(rank);
}

void Rank::wait() const { cuStreamSynchronize(stream); }

ncclResult_t Rank::asyncError() const {
  ncclResult_t result = ncclSuccess;
  ncclCommGetAsyncError(comm, &result);
  return result;
}

void runThreads(int ranks, const std::function<void(Rank &)> &body) {
  const std::string id = newId();
  std::vector<std::string> failed(static_cast<size_t>(ranks));
  std::vector<std::thread> threads;
  for (int r = 0; r < ranks; ++r)
    threads.emplace_back([&, r] {
      Rank rank(id, ranks, r);
      if (rank.failed.empty())
        body(rank);
      failed[static_cast<size_t>(r)] = rank.failed;
    });
  for (std::thread &thread : threads)
    thread.join();
  for (const std::string &text : failed)
    CHECK(text == "");
}

namespace {

/// Device memory of a rank; makes no Catch2 assertions, which threads may not use.
struct Buffer {
  explicit Buffer(size_t count) : Buffer(std::vector<float>(count)) {}
  explicit Buffer(const std::vector<float> &values) : count(values.size()) {
    cuMemAlloc(&at, count * 4);
    cuMemcpyHtoD(at, values.data(), count * 4);
  }
  ~Buffer() { cuMemFree(at); }
  std::vector<float> read() const {
    std::vector<float> values(count);
    cuMemcpyDtoH(values.data(), at, count * 4);
    return values;
  }
  float *data() const { return reinterpret_cast<float *>(at); }
  CUdeviceptr at = 0;
  size_t count;
};

std::vector<float> numbers(size_t count, int rank) {
  std::vector<float> values(count);
  for (size_t i = 0; i < count; ++i)
    values[i] = static_cast<float>((i * 7 + static_cast<size_t>(rank) * 13) % 101);
  return values;
}

std::vector<float> total(size_t count, int ranks) {
  std::vector<float> sum(count);
  for (int r = 0; r < ranks; ++r) {
    const std::vector<float> part = numbers(count, r);
    std::transform(sum.begin(), sum.end(), part.begin(), sum.begin(), std::plus<>());
  }
  return sum;
}

void reduceAll(Rank &r, size_t count) {
  Buffer in(numbers(count, r.rank)), out(count), most(numbers(count, r.rank));
  r.expect(ncclAllReduce(in.data(), out.data(), count, ncclFloat32, ncclSum, r.comm, r.onStream()) == ncclSuccess,
           "sum");
  r.expect(ncclAllReduce(most.data(), most.data(), count, ncclFloat32, ncclMax, r.comm, r.onStream()) == ncclSuccess,
           "max");
  r.wait();
  r.expect(out.read() == total(count, r.ranks), "AllReduce sum");
  std::vector<float> want = numbers(count, 0);
  for (int k = 1; k < r.ranks; ++k) {
    const std::vector<float> other = numbers(count, k);
    for (size_t i = 0; i < count; ++i)
      want[i] = std::max(want[i], other[i]);
  }
  r.expect(most.read() == want, "AllReduce max, in place");
}

void gatherAndScatter(Rank &r, size_t count) {
  const auto ranks = static_cast<size_t>(r.ranks), me = static_cast<size_t>(r.rank);
  Buffer mine(numbers(count, r.rank)), all(count * ranks), wide(numbers(count * ranks, r.rank)), part(count);
  ncclAllGather(mine.data(), all.data(), count, ncclFloat32, r.comm, r.onStream());
  ncclReduceScatter(wide.data(), part.data(), count, ncclFloat32, ncclSum, r.comm, r.onStream());
  ncclBroadcast(mine.data(), mine.data(), count, ncclFloat32, r.ranks - 1, r.comm, r.onStream());
  r.wait();
  std::vector<float> want;
  for (int k = 0; k < r.ranks; ++k) {
    const std::vector<float> piece = numbers(count, k);
    want.insert(want.end(), piece.begin(), piece.end());
  }
  r.expect(all.read() == want, "AllGather");
  const std::vector<float> sum = total(count * ranks, r.ranks);
  const auto begin = sum.begin() + static_cast<ptrdiff_t>(me * count);
  r.expect(part.read() == std::vector<float>(begin, begin + static_cast<ptrdiff_t>(count)), "ReduceScatter");
  r.expect(mine.read() == numbers(count, r.ranks - 1), "Broadcast");
}

void sendAround(Rank &r, size_t count) {
  Buffer mine(numbers(count, r.rank)), from(count), all(numbers(8 * static_cast<size_t>(r.ranks), r.rank)),
      turned(8 * static_cast<size_t>(r.ranks));
  const int next = (r.rank + 1) % r.ranks, before = (r.rank + r.ranks - 1) % r.ranks;
  ncclGroupStart();
  ncclSend(mine.data(), count, ncclFloat32, next, r.comm, r.onStream());
  ncclRecv(from.data(), count, ncclFloat32, before, r.comm, r.onStream());
  r.expect(ncclGroupEnd() == ncclSuccess, "group");
  r.expect(ncclAlltoAll(all.data(), turned.data(), 8, ncclFloat32, r.comm, r.onStream()) == ncclSuccess, "all to all");
  r.wait();
  r.expect(from.read() == numbers(count, before), "send and receive");
  std::vector<float> want;
  for (int k = 0; k < r.ranks; ++k) {
    const std::vector<float> theirs = numbers(8 * static_cast<size_t>(r.ranks), k);
    want.insert(want.end(), theirs.begin() + 8 * r.rank, theirs.begin() + 8 * r.rank + 8);
  }
  r.expect(turned.read() == want, "AlltoAll");
}

void split(Rank &r) {
  ncclComm_t half = nullptr;
  r.expect(ncclCommSplit(r.comm, r.rank % 2, -r.rank, &half, nullptr) == ncclSuccess, "split");
  int count = 0, rank = -1;
  ncclCommCount(half, &count);
  ncclCommUserRank(half, &rank);
  r.expect(count == (r.ranks + 1 - r.rank % 2) / 2 && rank == (r.ranks - 1 - r.rank) / 2, "ranks of a part");
  const std::vector<float> mine = {static_cast<float>(r.rank)};
  Buffer one(mine);
  ncclAllReduce(one.data(), one.data(), 1, ncclFloat32, ncclSum, half, r.onStream());
  r.wait();
  float want = 0;
  for (int k = r.rank % 2; k < r.ranks; k += 2)
    want += static_cast<float>(k);
  r.expect(one.read()[0] == want, "AllReduce in a part");
  ncclCommFinalize(half);
  ncclCommDestroy(half);
}

} // namespace

void exercise(Rank &r) {
  for (size_t count : {1ul, 1000ul, 200000ul}) {
    reduceAll(r, count);
    gatherAndScatter(r, count);
    sendAround(r, count);
  }
  if (r.ranks > 1)
    split(r);
  r.expect(r.asyncError() == ncclSuccess, "an asynchronous error");
}

} // namespace cleave::fake
