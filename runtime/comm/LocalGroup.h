// Collectives among threads. Members publish their pointers, synchronise at a barrier, and read each other's memory
// directly. Small buffers are copied to a staging area first, which saves the second barrier.
#pragma once
#include "runtime/comm/Communicator.h"
#include "runtime/comm/Event.h"

#include <functional>

namespace cleave {

/// State shared by the members of one group.
struct LocalGroup {
  LocalGroup(std::vector<uint32_t> ranks, WaitLimits &limits);

  struct alignas(64) Member {
    std::span<const CollectivePart> parts; ///< published for the current collective
    std::unique_ptr<std::byte[]> staging;  ///< two halves, used alternately
  };
  std::vector<uint32_t> ranks;
  WaitLimits &limits;
  std::vector<Member> members;
  alignas(64) std::atomic<uint32_t> arrived{0};
  alignas(64) Event phase;
};

class LocalCommunicator final : public Communicator {
public:
  /// `fail` throws the error for a wait that ended early; `reading` is true while this rank reads others' memory.
  LocalCommunicator(LocalGroup &group, unsigned member, std::function<void(WaitResult)> fail, const unsigned &threads,
                    std::atomic<bool> &reading);
  unsigned size() const override { return static_cast<unsigned>(group.ranks.size()); }
  unsigned member() const override { return me; }
  void run(plan::CollectiveKind kind, plan::ReduceKind reduce, plan::DType dtype,
           std::span<const CollectivePart> parts) override;
  void barrier() override;

private:
  struct Call;
  void work(plan::CollectiveKind kind, const Call &call, std::span<const CollectivePart> parts);
  void gatherSources(const Call &call, size_t part, int64_t stagingOffset);
  void reduceWhole(const Call &call, const CollectivePart &part);
  void reduceOwnChunk(const Call &call, const CollectivePart &part);
  void copyOtherChunks(const Call &call, size_t part);
  void reduceOwnShare(const Call &call, const CollectivePart &part);
  void copyShares(const Call &call, const CollectivePart &part);
  void copyBlocks(const Call &call, const CollectivePart &part);
  unsigned threadsFor(int64_t bytes) const;

  LocalGroup &group;
  unsigned me;
  std::function<void(WaitResult)> fail;
  const unsigned &threads;
  std::atomic<bool> &reading;
  unsigned half = 0;
  std::vector<const void *> sources; ///< each member's input of the current part
};

} // namespace cleave
