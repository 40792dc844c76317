// What the instructions of one rank can ask of the others. Implemented by the distributed interpreter.
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

  /// Meets the other members: gives `mine`, returns everybody's in member order. Members are the ranks that differ from
  /// this one only along `axes` (ordered by their linear coordinate along them); where `stages` is not empty, only
  /// those coordinates of pp. `what` must be the same on all members.
  virtual std::vector<std::shared_ptr<const std::vector<HostTensor>>> exchange(const std::vector<std::string> &axes,
                                                                               const std::vector<int64_t> &stages,
                                                                               const std::string &what,
                                                                               std::vector<HostTensor> mine) = 0;
  /// To and from the rank of `stage` with this rank's other coordinates, in the current microbatch.
  virtual void send(int64_t stage, int64_t tag, HostTensor tensor) = 0;
  virtual HostTensor receive(int64_t stage, int64_t tag) = 0;
};

} // namespace cleave::ir
