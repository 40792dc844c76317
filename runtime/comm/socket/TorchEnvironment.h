// The environment variables that torchrun and similar launchers set for every process.
#pragma once
#include "runtime/comm/socket/Socket.h"

#include <cstdint>
#include <optional>
#include <string>

namespace cleave {

struct TorchEnvironment {
  unsigned rank = 0, size = 1;           ///< RANK, WORLD_SIZE
  unsigned localRank = 0, localSize = 0; ///< LOCAL_RANK, LOCAL_WORLD_SIZE: on this host; 0: unknown
  std::string address;                   ///< MASTER_ADDR: rank 0's host
  uint16_t port = 0;                     ///< MASTER_PORT: of rank 0, or of the launcher's store
  /// If the launcher uses MASTER_PORT for its own store (TORCHELASTIC_USE_AGENT_STORE), the key under which rank 0
  /// publishes its port. Empty: rank 0 listens at MASTER_PORT.
  std::string storeKey;

  /// The addresses of MASTER_ADDR with this port. Throws a user error if the name does not resolve.
  std::vector<Endpoint> masterAt(uint16_t port) const;
};

/// The launcher's variables; nullopt if WORLD_SIZE is not above 1 and not both RANK and MASTER_ADDR are set. Throws a
/// user error that names the variable and its value if one is missing or out of range.
std::optional<TorchEnvironment> torchEnvironment();

} // namespace cleave
