// torchrun's agent keeps MASTER_PORT for a key-value store of its own (torch.distributed.TCPStore); rank 0 then listens
// at another port and says there which. This speaks the four requests that takes of the store's protocol.
#pragma once
#include "runtime/comm/Socket.h"
#include "runtime/comm/TorchEnvironment.h"

namespace cleave {

class AgentStore {
public:
  /// Connects. Throws user and environment errors that name MASTER_ADDR and MASTER_PORT.
  AgentStore(const TorchEnvironment &who, Clock::time_point deadline);
  /// Stores rank 0's port under who.storeKey.
  void publish(uint16_t port);
  /// Waits for it.
  uint16_t find();

private:
  void send(const std::string &request);
  void receive(void *data, size_t bytes);
  const TorchEnvironment &who;
  Clock::time_point deadline;
  Socket socket;
};

} // namespace cleave
