// Communication between ranks. A Communicator is one rank's membership of one group. A RankEndpoint has everything that
// one rank needs: communicators, point-to-point messages and helpers for set-up. Implementations: threads of one
// process (LocalWorld.h), processes with sockets (SocketWorld.h) and MPI processes (MpiWorld.h). All give the same
// bits: reductions add in member order 0, 1, ...
//
// Every wait has a deadline and ends if another rank fails; both are environment errors that name the rank.
#pragma once
#include "runtime/base/Error.h"
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
  /// This rank's index in the group.
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

/// A rank with which this one exchanges messages, and the bytes of an iteration's messages.
struct MessagePeer {
  unsigned rank = 0;
  uint64_t sends = 0, receives = 0;
  uint64_t largest = 0; ///< of one message
};

class RankEndpoint {
public:
  virtual ~RankEndpoint() = default;
  virtual unsigned rank() const = 0;
  virtual unsigned size() const = 0;
  /// The group of these ranks (in member order), which include this rank. Created during set-up: all members must
  /// request their common groups in the same order. Valid as long as the world.
  virtual Communicator &group(std::span<const uint32_t> ranks) = 0;
  /// Sets the timeout of waits in seconds, and the silence after which a process counts as stopped.
  virtual void setTimeout(double seconds) = 0;
  /// Sets only the silence: with a long timeout, a stopped process is still noticed soon.
  virtual void setSilence(double seconds) {}
  /// Sets the number of threads that this rank may use to reduce and copy large buffers.
  virtual void setThreads(unsigned threads) = 0;

  /// Says with which ranks this one will exchange messages, so that those of one host may use shared memory. Optional.
  /// Called during set-up, when no message is in flight, by both ranks of a pair; only the first call has an effect.
  virtual void link(std::span<const MessagePeer>) {}
  /// Starts a message; the memory must not change before waitSend. At most `reserveSends` messages may be in flight.
  virtual void send(const void *data, size_t bytes, unsigned peer, uint32_t tag, int32_t microbatch) = 0;
  virtual void waitSend(uint32_t tag, int32_t microbatch) = 0;
  virtual void waitAllSends() = 0;
  virtual void recv(void *data, size_t bytes, unsigned peer, uint32_t tag, int32_t microbatch) = 0;
  virtual void reserveSends(size_t count) = 0;
  /// Throws an environment error if this world cannot encode such a message; called at load, so that training does not
  /// fail later.
  virtual void checkMessage(uint32_t tag, int32_t microbatch) const = 0;

  /// Afterwards no other rank reads this rank's memory: messages not yet received are withdrawn. Call before the memory
  /// is freed, also after an error.
  virtual void detach() = 0;
  /// Tells all ranks that this one fails; their waits end with an error that names it. Processes end with the same
  /// status.
  virtual void abort(const std::string &message, Status status = Status::Environment) = 0;
  /// Throws if another rank is known to have failed. Does not block. Call while waiting on work outside RankEndpoint,
  /// such as NCCL.
  virtual void checkPeers() = 0;
  /// The message of the first rank that is known to have failed; empty: none. Any thread may call it.
  virtual std::string failure() const = 0;
  /// Whether rank 0 reports within this time that it fails for the same reason, so that only one rank prints the
  /// message.
  virtual bool rankZeroSays(const std::string &, double) const { return false; }

  // Set-up and results; these may allocate.
  virtual void barrier() = 0;
  /// Sends rank 0's bytes to all ranks.
  virtual void broadcast(std::vector<uint8_t> &bytes) = 0;
  /// Collects all ranks' bytes on rank 0 (by rank; empty on other ranks).
  virtual std::vector<std::vector<uint8_t>> gather(std::span<const uint8_t> bytes) = 0;
};

/// The name of what ranks send each other during set-up; no plan has it.
constexpr uint32_t setupTag = 0x3fff0;
constexpr int32_t setupMicrobatch = -1;

/// "message 3 of microbatch 1", for error messages.
std::string messageName(uint32_t tag, int32_t microbatch);

} // namespace cleave
