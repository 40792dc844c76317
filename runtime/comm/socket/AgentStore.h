// torchrun's agent keeps MASTER_PORT for a key-value store of its own (torch.distributed.TCPStore); rank 0 then listens
// at another port and says there which. This speaks the four requests that takes of the store's protocol.
#pragma once
#include "runtime/comm/socket/Socket.h"
#include "runtime/comm/socket/TorchEnvironment.h"

#include <string>

namespace cleave {

class AgentStore {
public:
  /// Connects. Throws user and environment errors that name MASTER_ADDR and MASTER_PORT.
  AgentStore(const TorchEnvironment &who, Clock::time_point deadline);
  /// What rank 0 says to those who may ask the store.
  struct Said {
    uint16_t port = 0;
    std::string secret; ///< letters and digits, at most 40; only who knows it may join
    bool operator==(const Said &) const = default;
  };
  /// Stores it under who.storeKey.
  void publish(const Said &said);
  /// Waits for it.
  Said find();

private:
  void send(const std::string &request);
  void receive(void *data, size_t bytes);
  const TorchEnvironment &who;
  Clock::time_point deadline;
  Socket socket;
};

} // namespace cleave
