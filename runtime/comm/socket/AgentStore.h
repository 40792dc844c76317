// If torchrun's agent uses MASTER_PORT for its key-value store (torch.distributed.TCPStore), rank 0 listens at another
// port and publishes it in the store. This client implements the four requests needed.
#pragma once
#include "runtime/comm/socket/Socket.h"
#include "runtime/comm/socket/TorchEnvironment.h"

#include <string>

namespace cleave {

class AgentStore {
public:
  /// Connects. Throws user and environment errors that name MASTER_ADDR and MASTER_PORT.
  AgentStore(const TorchEnvironment &who, Clock::time_point deadline);
  /// The values that rank 0 publishes for processes that can read the store.
  struct Said {
    uint16_t port = 0;
    std::string secret; ///< letters and digits, at most 40; required to join
    bool operator==(const Said &) const = default;
  };
  /// Stores the values under who.storeKey.
  void publish(const Said &said);
  /// Waits until rank 0 has stored the values, and returns them.
  Said find();

private:
  void send(const std::string &request);
  void receive(void *data, size_t bytes);
  const TorchEnvironment &who;
  Clock::time_point deadline;
  Socket socket;
};

} // namespace cleave
