// The interface by which instructions of one rank communicate with other ranks.
#pragma once
#include "ir/dist/Sharding.h"
#include "ir/interpreter/HostTensor.h"

#include <memory>
#include <string>
#include <vector>

namespace cleave::ir {

class RankPort {
public:
  virtual ~RankPort() = default;
  virtual const Mesh &mesh() const = 0;
  virtual const std::vector<int64_t> &coords() const = 0;

  /// Exchanges tensors with the other members: contributes `mine` and returns all members' tensors in member order.
  /// Members are the ranks that differ from this rank only along `axes`, ordered by their linear coordinate; if
  /// `stages` is not empty, only ranks with these coordinates on pp. All members must pass the same `what`.
  virtual std::vector<std::shared_ptr<const std::vector<HostTensor>>> exchange(const std::vector<std::string> &axes,
                                                                               const std::vector<int64_t> &stages,
                                                                               const std::string &what,
                                                                               std::vector<HostTensor> mine) = 0;
  /// Sends to, or receives from, the rank of `stage` with the same other coordinates, in the current microbatch.
  virtual void send(int64_t stage, int64_t tag, HostTensor tensor) = 0;
  virtual HostTensor receive(int64_t stage, int64_t tag) = 0;
};

} // namespace cleave::ir
