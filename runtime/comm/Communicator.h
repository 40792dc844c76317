// What ranks say to each other. A Communicator is one rank's membership of one group; a World is all that one rank
// needs: its communicators, its point-to-point messages and a few helpers for set-up. Implementations: threads of one
// process (LocalWorld.h), processes that talk over sockets (SocketWorld.h) and MPI processes (MpiWorld.h). They give
// the same bits: reductions add in member order 0, 1, ...
//
// Every wait has a deadline and notices when another rank has failed; both are environment errors that say who.
#pragma once
#include "runtime/plan/PlanTypes.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace cleave {

/// One buffer of a collective; see CollectiveBuffer in plan.fbs.
struct CollectivePart {
  const void *in = nullptr;
  void *out = nullptr;
  int64_t count = 0;                ///< elements; AllReduce, AllToAll, Broadcast
  int64_t outer = 1, inner = 1;     ///< AllGather, ReduceScatter
  std::span<const int64_t> sizes{}; ///< AllGather, ReduceScatter: each member's share
};

class Communicator {
public:
  virtual ~Communicator() = default;
  virtual unsigned size() const = 0;
  /// This rank's place in the group.
  virtual unsigned member() const = 0;
  virtual void run(plan::CollectiveKind kind, plan::ReduceKind reduce, plan::DType dtype,
                   std::span<const CollectivePart> parts) = 0;
  virtual void barrier() = 0;

  void allReduce(const void *in, void *out, int64_t count, plan::DType dtype, plan::ReduceKind reduce);
  void allGather(const void *in, void *out, int64_t outer, int64_t inner, std::span<const int64_t> sizes,
                 plan::DType dtype);
  void reduceScatter(const void *in, void *out, int64_t outer, int64_t inner, std::span<const int64_t> sizes,
                     plan::DType dtype, plan::ReduceKind reduce);
  /// `count` elements in size() equal blocks.
  void allToAll(const void *in, void *out, int64_t count, plan::DType dtype);
  /// From member 0.
  void broadcast(const void *in, void *out, int64_t count, plan::DType dtype);
};

class World {
public:
  virtual ~World() = default;
  virtual unsigned rank() const = 0;
  virtual unsigned size() const = 0;
  /// The group of these ranks, of which this rank is one; order is member order. Made at set-up: all members ask for
  /// their common groups in the same order. Lives as long as the world.
  virtual Communicator &group(std::span<const uint32_t> ranks) = 0;
  /// Seconds until a wait gives up, and of silence after which a process counts as stopped.
  virtual void setTimeout(double seconds) = 0;
  /// The silence alone: while others may take long, a process that is stopped is still noticed soon.
  virtual void setSilence(double seconds) {}
  /// Threads that this rank may use to reduce and copy large buffers.
  virtual void setThreads(unsigned threads) = 0;

  /// Starts a message; the memory may not change before waitSend. At most `reserveSends` are under way at once.
  virtual void send(const void *data, size_t bytes, unsigned peer, uint32_t tag, int32_t microbatch) = 0;
  virtual void waitSend(uint32_t tag, int32_t microbatch) = 0;
  virtual void waitAllSends() = 0;
  virtual void recv(void *data, size_t bytes, unsigned peer, uint32_t tag, int32_t microbatch) = 0;
  virtual void reserveSends(size_t count) = 0;
  /// Throws an environment error where this world cannot name such a message; asked at load, so that no training ends
  /// so.
  virtual void checkMessage(uint32_t tag, int32_t microbatch) const = 0;

  /// After this no other rank reads this rank's memory: messages nobody took are withdrawn. Called before the memory
  /// goes, also when that happens because of an error.
  virtual void detach() = 0;
  /// Tells all ranks that this one fails; their waits end with an error that names it.
  virtual void abort(const std::string &message) = 0;
  /// Throws the failure of another rank that this one knows of, to be called while
  /// waiting for work outside of this world (a collective that runs on a GPU). Does not wait.
  virtual void checkPeers() = 0;
  /// Whether rank 0 says within this time that it ends by the same failure, so that one rank prints it.
  virtual bool rankZeroSays(const std::string &, double) const { return false; }

  // Set-up and results; these may allocate.
  virtual void barrier() = 0;
  /// Rank 0's bytes to everybody.
  virtual void broadcast(std::vector<uint8_t> &bytes) = 0;
  /// Everybody's bytes to rank 0 (by rank; empty elsewhere).
  virtual std::vector<std::vector<uint8_t>> gather(std::span<const uint8_t> bytes) = 0;
};

} // namespace cleave
