// Collectives among processes, independent of the transport: all are exchanges of byte blocks, with reductions in
// member order, so the bits equal those of the local communicator. Large buffers are processed in rounds through two
// fixed scratch buffers: nothing is allocated after set-up, and every count fits in an int.
//
// Members that all run on one host use a shared segment instead (SharedGroup.h), with the same bits.
#pragma once
#include "runtime/comm/Communicator.h"
#include "runtime/comm/SharedGroup.h"

namespace cleave {

/// The two scratch buffers for one rank's collectives.
class ExchangeScratch {
public:
  static constexpr int64_t bytes = int64_t{4} << 20; ///< size of each
  explicit ExchangeScratch(unsigned ranks);
  std::byte *operator[](int which) { return memory[which].get(); }

private:
  std::unique_ptr<std::byte[]> memory[2];
};

class ExchangeCommunicator : public Communicator {
public:
  unsigned size() const final { return members; }
  unsigned member() const final { return me; }
  void run(plan::CollectiveKind kind, plan::ReduceKind reduce, plan::DType dtype,
           std::span<const CollectivePart> parts) final;
  /// Finds out whether all members can use one shared segment, and uses it then. All members call it, during set-up;
  /// only the first call has an effect. `ranks`: of the world.
  void share(unsigned ranks);
  /// Seconds in which all members must call `share`: ranks that still load files are not given up.
  static constexpr double sharingSeconds = 24 * 3600;

protected:
  /// `scratch` is shared by the rank's communicators, of which one runs at a time.
  ExchangeCommunicator(unsigned members, unsigned member, ExchangeScratch &scratch);

  /// A block to, or from, each member: its size and offset in bytes.
  struct Blocks {
    std::vector<int> bytes, places;
  };
  Blocks sends, receives;

  // The transport. Blocks may be empty; member m's sends.bytes[k] equals member k's receives.bytes[m].
  /// Sends `sends` of `from` and receives `receives` into `to`, including the own block.
  virtual void exchange(const std::byte *from, std::byte *to) = 0;
  /// Sends receives.bytes[member()] bytes of `from` to all; receives `receives` into `to`, including the own block.
  virtual void gatherBytes(const std::byte *from, std::byte *to) = 0;
  /// Copies member 0's bytes to all members.
  virtual void broadcastBytes(std::byte *data, size_t bytes) = 0;
  /// Waits for a member in shared memory: until it is done, a deadline, or a rank's failure. Messages move on.
  virtual void waitShared(const SharedWait &awaited) = 0;
  /// Lets this rank's sends move on, without waiting.
  virtual void moveMessages() = 0;

private:
  struct Call;
  void reduceSmall(const Call &call, std::span<const CollectivePart> parts, int64_t bytes);
  void allReduce(const Call &call, const CollectivePart &part);
  void allGather(const Call &call, const CollectivePart &part);
  void reduceScatter(const Call &call, const CollectivePart &part);
  void allToAll(const Call &call, const CollectivePart &part);
  void broadcast(const Call &call, const CollectivePart &part);

  unsigned members, me;
  ExchangeScratch &scratch;
  std::vector<const void *> inputs;
  bool asked = false; ///< `share` has been called
  std::unique_ptr<SharedGroup> shared;
};

/// A rank that is a process. What it receives during set-up takes memory as it arrives, not by an announced size.
class ExchangeEndpoint : public RankEndpoint {
public:
  void broadcast(std::vector<uint8_t> &bytes) final;
  std::vector<std::vector<uint8_t>> gather(std::span<const uint8_t> bytes) final;

protected:
  /// Copies rank 0's bytes to all ranks.
  virtual void broadcastBytes(std::byte *data, size_t bytes) = 0;
};

/// The index of `rank` in a group that contains it.
unsigned placeInGroup(std::span<const uint32_t> ranks, unsigned rank);

} // namespace cleave
