// The environment that torchrun, and launchers like it, give to every process.
#pragma once
#include <cstdint>
#include <optional>
#include <string>

namespace cleave {

struct TorchEnvironment {
  unsigned rank = 0, size = 1;           ///< RANK, WORLD_SIZE
  unsigned localRank = 0, localSize = 0; ///< LOCAL_RANK, LOCAL_WORLD_SIZE: on this host; 0: not said
  std::string address;                   ///< MASTER_ADDR: rank 0's host
  uint16_t port = 0;                     ///< MASTER_PORT: where rank 0 listens, or the launcher's store
  /// The launcher keeps MASTER_PORT for a store of its own (TORCHELASTIC_USE_AGENT_STORE), where rank 0 says under this
  /// name at which port it listens. Empty: rank 0 listens at MASTER_PORT.
  std::string storeKey;
};

/// What a launcher said to this process; none where it said nothing: no WORLD_SIZE above 1, and not both RANK and
/// MASTER_ADDR. Throws a user error that names the variable and its value where one is missing or out of range.
std::optional<TorchEnvironment> torchEnvironment();

} // namespace cleave
