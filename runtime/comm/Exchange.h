// Collectives among processes, whatever carries their bytes: all of them as exchanges of byte blocks, with sums in
// member order; so every communicator made of this gives the local communicator's bits. Large buffers go in rounds
// through two fixed scratch buffers: nothing is allocated after set-up, and every count fits an int.
#pragma once
#include "runtime/comm/Communicator.h"

namespace cleave {

/// The two buffers that collectives of one rank go through.
class ExchangeScratch {
public:
  static constexpr int64_t bytes = int64_t{4} << 20; ///< of each
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

protected:
  /// `scratch` is shared by the rank's communicators, of which one runs at a time.
  ExchangeCommunicator(unsigned members, unsigned member, ExchangeScratch &scratch);

  /// A block for, or from, each member: its bytes and where it lies.
  struct Blocks {
    std::vector<int> bytes, places;
  };
  Blocks sends, receives;

  // What carries the bytes. Blocks may be empty; member m's sends.bytes[k] is member k's receives.bytes[m].
  /// `sends` of `from`, `receives` into `to`; own block included.
  virtual void exchange(const std::byte *from, std::byte *to) = 0;
  /// receives.bytes[member()] bytes of `from` to everybody, `receives` into `to`; own block included.
  virtual void gatherBytes(const std::byte *from, std::byte *to) = 0;
  /// Member 0's bytes into everybody's.
  virtual void broadcastBytes(std::byte *data, size_t bytes) = 0;

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
};

/// The place of `rank` in a group; the group's members are few and it is one of them.
unsigned placeInGroup(std::span<const uint32_t> ranks, unsigned rank);

} // namespace cleave
