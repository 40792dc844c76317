// Ranks as processes started by a launcher with torchrun's environment: no MPI, one TCP connection per pair of ranks,
// and one more to rank 0 for heartbeats (PeerWatch.h). Messages of ranks that share memory go through it instead. Any
// wait makes progress on all connections. A message counts as sent when the system, or the shared memory, has taken its
// bytes. An early message is stored in a reusable buffer of the receiver, which grows to the maximum needed; otherwise
// nothing is allocated after set-up.
#pragma once
#include "runtime/comm/Connection.h"
#include "runtime/comm/Exchange.h"
#include "runtime/comm/SharedMessages.h"
#include "runtime/comm/socket/PeerWatch.h"
#include "runtime/comm/socket/Rendezvous.h"
#include "runtime/comm/socket/TorchEnvironment.h"

#include <map>

struct pollfd;

namespace cleave {

class SocketCommunicator;

class SocketWorld final : public ExchangeEndpoint {
public:
  /// Connects to the other ranks within at most `seconds`. Throws user and environment errors (Rendezvous.h).
  SocketWorld(const TorchEnvironment &who, double seconds);
  /// Says goodbye. Requires that all pending communication has completed (barrier) or that this rank has failed.
  ~SocketWorld() override;

  unsigned rank() const override { return me; }
  unsigned size() const override { return ranks; }
  Communicator &group(std::span<const uint32_t> list) override;
  void setTimeout(double value) override;
  void setSilence(double value) override { watch->setSilence(value); }
  void setThreads(unsigned) override {}
  void link(std::span<const MessagePeer> peers) override;
  void send(const void *data, size_t bytes, unsigned peer, uint32_t tag, int32_t microbatch) override;
  void waitSend(uint32_t tag, int32_t microbatch) override;
  void waitAllSends() override;
  void recv(void *data, size_t bytes, unsigned peer, uint32_t tag, int32_t microbatch) override;
  void reserveSends(size_t count) override {
    sending.reserve(count);
    pool.reserve(count);
  }
  void checkMessage(uint32_t, int32_t) const override {}
  void detach() override;
  void abort(const std::string &message, Status status = Status::Environment) override {
    watch->abort(message, status);
  }
  void checkPeers() override { watch->check(); }
  std::string failure() const override { return watch->firstFailure(); }
  void barrier() override;
  bool rankZeroSays(const std::string &message, double limit) const override {
    return watch->rankZeroSays(message, limit);
  }

private:
  friend class SocketCommunicator;
  void broadcastBytes(std::byte *data, size_t bytes) override;
  SocketCommunicator &all();
  SocketCommunicator &find(std::span<const uint32_t> list);
  void expect(Connection &from, const FrameHeader &header, void *data);
  template <typename Done, typename Describe> void wait(Done done, Describe describe) {
    wait(done, describe, [this](Clock::time_point deadline) { sleep(deadline); });
  }
  template <typename Done, typename Describe, typename Rest> void wait(Done done, Describe describe, Rest rest);
  template <typename Done, typename Describe> void waitMessage(unsigned peer, Done done, Describe describe);
  bool delays(const Connection &connection) const;
  void waitFor(Outgoing &frame);
  bool move();
  void sleep(Clock::time_point deadline);
  template <typename Done> void checkConnections(Done done);
  [[noreturn]] void fail(const std::string &text);
  [[noreturn]] void expire(const std::string &what, bool stalled);

  unsigned me, ranks;
  double seconds = 60;
  ExchangeScratch scratch;
  EarlyBuffers buffers;
  std::unique_ptr<Doorkeeper> door; ///< rank 0's
  std::unique_ptr<PeerWatch> watch;
  std::vector<std::unique_ptr<Connection>> connections; ///< by rank; the own entry has no socket
  const Connection *awaited = nullptr;                  ///< to the rank that this one waits for in shared memory
  std::vector<pollfd> polls;
  std::map<std::vector<uint32_t>, std::unique_ptr<SocketCommunicator>> communicators;
  SharedMessages shared;
  OutgoingPool pool;
  std::vector<Outgoing *> sending;
};

} // namespace cleave
