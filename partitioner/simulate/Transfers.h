// The measured times of transfers without the time in which a rank waits for others.
#pragma once
#include "partitioner/simulate/ReadTrace.h"

#include <map>
#include <tuple>
#include <vector>

namespace cleave::partitioner {

/// 0 for no values.
double median(std::vector<double> values);

/// For each measured step, its seconds without waiting for other ranks: the last part of the step. A collective is
/// timed from the arrival of its last member, a message from the arrival of both ends, any other step from its begin.
class Transfers {
public:
  /// `run`: the result of readTrace for `plan`. Both must outlive this.
  Transfers(const plan::Plan &plan, const MeasuredRun &run);

  /// `index`: of run.ranks[rank].
  double of(uint32_t rank, size_t index) const { return steps[rank][index].seconds; }
  /// Whether the step took as long as it takes: not if a message was on its way before its receiver waited for it.
  bool whole(uint32_t rank, size_t index) const { return steps[rank][index].whole; }

private:
  using Meeting = std::tuple<uint32_t, uint32_t, uint64_t>;          ///< group, iteration, number of earlier
                                                                     ///< collectives of the group
  using Message = std::tuple<uint32_t, uint32_t, int32_t, uint32_t>; ///< sender, tag, microbatch, iteration
  struct Ends {
    double sent = 0, awaited = 0;
  };
  struct Taken {
    double seconds;
    bool whole = true;
  };

  /// Calls collective(step, entry, meeting) or message(step, entry, message, whether it sends) for each measured step
  /// of that kind.
  template <typename OnCollective, typename OnMessage>
  void forEachExchange(uint32_t rank, OnCollective collective, OnMessage message);

  const plan::Plan &plan;
  const MeasuredRun &run;
  std::vector<std::vector<Taken>> steps; ///< by rank
};

} // namespace cleave::partitioner
