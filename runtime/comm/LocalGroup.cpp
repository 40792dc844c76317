// Collectives among threads.
#include "runtime/comm/LocalGroup.h"

#include "runtime/comm/Reduce.h"
#include "runtime/comm/Shares.h"
#include "runtime/device/Parallel.h"
#include "runtime/plan/DTypes.h"
#include "runtime/plan/Slices.h"
#include "runtime/plan/plan_generated.h"

#include <numeric>

namespace cleave {

using plan::CollectiveKind;

static constexpr int64_t stagingBytes = 32 << 10; // of each half
static constexpr int64_t parallelBytes = 512 << 10;

struct LocalCommunicator::Call {
  plan::ReduceKind reduce;
  plan::DType dtype;
  int64_t element; ///< bytes
  bool staged;
};

LocalGroup::LocalGroup(std::vector<uint32_t> ranks, WaitLimits &limits)
    : ranks(std::move(ranks)), limits(limits), members(this->ranks.size()) {
  for (Member &member : members)
    member.staging = std::make_unique<std::byte[]>(2 * stagingBytes);
}

LocalCommunicator::LocalCommunicator(LocalGroup &group, unsigned member, std::function<void(WaitResult)> fail,
                                     const unsigned &threads, std::atomic<bool> &reading)
    : group(group), me(member), fail(std::move(fail)), threads(threads), reading(reading), sources(group.ranks.size()) {
}

void LocalCommunicator::barrier() {
  uint32_t old = group.phase.value();
  if (group.arrived.fetch_add(1, std::memory_order_acq_rel) + 1 == size()) {
    group.arrived.store(0, std::memory_order_relaxed);
    group.phase.advance();
    return;
  }
  WaitResult result = group.phase.wait(old, group.limits);
  if (result != WaitResult::Ready)
    fail(result);
}

unsigned LocalCommunicator::threadsFor(int64_t bytes) const { return bytes >= parallelBytes ? threads : 1; }

/// Elements of member `m`'s input.
static int64_t inputElements(CollectiveKind kind, const CollectivePart &part, unsigned m) {
  if (kind == CollectiveKind::AllGather)
    return part.outer * part.inner * part.sizes[m];
  if (kind == CollectiveKind::ReduceScatter)
    return part.outer * part.inner * std::accumulate(part.sizes.begin(), part.sizes.end(), int64_t{0});
  return part.count;
}

/// Bytes of staging memory for each part: the largest member's, so that all members agree.
static int64_t stagingNeed(CollectiveKind kind, const CollectivePart &part, unsigned members, int64_t element) {
  int64_t most = 0;
  for (unsigned m = 0; m < members; ++m)
    most = std::max(most, inputElements(kind, part, m));
  return (most * element + 63) / 64 * 64;
}

void LocalCommunicator::gatherSources(const Call &call, size_t part, int64_t stagingOffset) {
  for (unsigned m = 0; m < size(); ++m)
    sources[m] = call.staged ? group.members[m].staging.get() + half * stagingBytes + stagingOffset
                             : group.members[m].parts[part].in;
}

void LocalCommunicator::reduceWhole(const Call &call, const CollectivePart &part) {
  reduceElements(call.dtype, call.reduce, sources, 0, part.out, part.count);
}

void LocalCommunicator::reduceOwnChunk(const Call &call, const CollectivePart &part) {
  Part chunk = splitLines(part.count, call.element, size(), me);
  auto *out = static_cast<std::byte *>(part.out);
  parallelRange(threadsFor(chunk.count * call.element), chunk.count, 1024, [&](int64_t begin, int64_t end) {
    reduceElements(call.dtype, call.reduce, sources, chunk.begin + begin, out + (chunk.begin + begin) * call.element,
                   end - begin);
  });
}

void LocalCommunicator::copyOtherChunks(const Call &call, size_t index) {
  const CollectivePart &part = group.members[me].parts[index];
  for (unsigned step = 1; step < size(); ++step) { // each member starts with another neighbour
    unsigned m = (me + step) % size();
    Part chunk = splitLines(part.count, call.element, size(), m);
    const auto *from = static_cast<const std::byte *>(group.members[m].parts[index].out) + chunk.begin * call.element;
    auto *to = static_cast<std::byte *>(part.out) + chunk.begin * call.element;
    parallelRange(threadsFor(chunk.count * call.element), chunk.count * call.element, 4096,
                  [&](int64_t begin, int64_t end) { copyBytes(to + begin, from + begin, end - begin); });
  }
}

void LocalCommunicator::reduceOwnShare(const Call &call, const CollectivePart &part) {
  int64_t total = std::accumulate(part.sizes.begin(), part.sizes.end(), int64_t{0});
  int64_t start = std::accumulate(part.sizes.begin(), part.sizes.begin() + me, int64_t{0});
  int64_t mine = part.sizes[me] * part.inner;
  auto *out = static_cast<std::byte *>(part.out);
  for (int64_t o = 0; mine && o < part.outer; ++o) {
    int64_t from = (o * total + start) * part.inner;
    parallelRange(threadsFor(mine * call.element), mine, 1024, [&](int64_t begin, int64_t end) {
      reduceElements(call.dtype, call.reduce, sources, from + begin, out + (o * mine + begin) * call.element,
                     end - begin);
    });
  }
}

void LocalCommunicator::copyShares(const Call &call, const CollectivePart &part) {
  int64_t row = std::accumulate(part.sizes.begin(), part.sizes.end(), int64_t{0}) * part.inner * call.element;
  int64_t start = 0;
  for (unsigned m = 0; m < size(); ++m) {
    int64_t bytes = part.sizes[m] * part.inner * call.element;
    const auto *from = static_cast<const std::byte *>(sources[m]);
    auto *to = static_cast<std::byte *>(part.out) + start;
    if (bytes)
      parallelRange(threadsFor(part.outer * bytes), part.outer, 1, [&](int64_t begin, int64_t end) {
        for (int64_t o = begin; o < end; ++o)
          copyBytes(to + o * row, from + o * bytes, bytes);
      });
    start += bytes;
  }
}

void LocalCommunicator::copyBlocks(const Call &call, const CollectivePart &part) {
  int64_t bytes = part.count / size() * call.element;
  for (unsigned m = 0; m < size(); ++m)
    copyBytes(static_cast<std::byte *>(part.out) + m * bytes, static_cast<const std::byte *>(sources[m]) + me * bytes,
              bytes);
}

/// A member's work after all inputs are published.
void LocalCommunicator::work(CollectiveKind kind, const Call &call, std::span<const CollectivePart> parts) {
  int64_t staging = 0;
  for (size_t p = 0; p < parts.size(); ++p) {
    const CollectivePart &part = parts[p];
    gatherSources(call, p, staging);
    staging += call.staged ? stagingNeed(kind, part, size(), call.element) : 0;
    if (kind == CollectiveKind::AllReduce)
      call.staged ? reduceWhole(call, part) : reduceOwnChunk(call, part);
    else if (kind == CollectiveKind::AllGather)
      copyShares(call, part);
    else if (kind == CollectiveKind::ReduceScatter)
      reduceOwnShare(call, part);
    else if (kind == CollectiveKind::AllToAll)
      copyBlocks(call, part);
    else if (part.out != sources[0])
      copyBytes(part.out, sources[0], part.count * call.element);
  }
}

/// Marks that this rank reads others' memory, which they must keep (RankEndpoint::detach waits for it).
struct ReadingOthers {
  explicit ReadingOthers(std::atomic<bool> &flag) : flag(flag) { flag.store(true, std::memory_order_seq_cst); }
  ~ReadingOthers() { end(); }
  void end() { flag.store(false, std::memory_order_release); }
  std::atomic<bool> &flag;
};

void LocalCommunicator::run(CollectiveKind kind, plan::ReduceKind reduce, plan::DType dtype,
                            std::span<const CollectivePart> parts) {
  Call call{reduce, dtype, static_cast<int64_t>(dtypeSize(dtype)), true};
  int64_t need = 0;
  for (const CollectivePart &part : parts)
    need += stagingNeed(kind, part, size(), call.element);
  call.staged = need <= stagingBytes && size() > 1;
  group.members[me].parts = parts;
  if (call.staged) {
    half ^= 1;
    std::byte *to = group.members[me].staging.get() + half * stagingBytes;
    for (const CollectivePart &part : parts) {
      copyBytes(to, part.in, inputElements(kind, part, me) * call.element);
      to += stagingNeed(kind, part, size(), call.element);
    }
  }
  barrier();
  if (call.staged)
    return work(kind, call, parts);
  ReadingOthers guard(reading);
  if (group.limits.failed.load(std::memory_order_seq_cst))
    fail(WaitResult::Failed);
  work(kind, call, parts);
  if (kind == CollectiveKind::AllReduce) {
    barrier();
    for (size_t p = 0; p < parts.size(); ++p)
      copyOtherChunks(call, p);
  }
  guard.end();
  barrier();
}

} // namespace cleave
