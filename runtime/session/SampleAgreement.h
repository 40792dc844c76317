// Ranks that read the same field of the same row must read the same values: the parts of a layer that `tp` splits, and
// stages that share a field. All ranks compare checksums of what they read in the first step of a run and in every
// 1,000th; other steps cost nothing.
#pragma once
#include "runtime/comm/Communicator.h"
#include "runtime/data/Loader.h"

#include <vector>

namespace cleave {

class SampleAgreement {
public:
  /// Collective over all ranks, during set-up. `source` and `order` must outlive this object.
  SampleAgreement(RankEndpoint &world, const DataSource &source, SampleOrder &order, int64_t batch);

  /// Whether the ranks compare what they read for this step; the same on all ranks.
  bool due(int64_t step) const { return all && (first || step % 1000 == 0); }
  /// Collective over all ranks. `mine`: the checksums of the batch that begins at sample `begin` of the epoch's order.
  /// On rank 0, throws userError that names the field, the sample and two ranks that read different values; the other
  /// ranks are notified as of any failure.
  void compare(const std::vector<RowChecksum> &mine, int64_t step, int64_t epoch, int64_t begin);

private:
  [[noreturn]] void refuse(const std::string &what, int64_t mine, int64_t least, int64_t most);

  RankEndpoint &world;
  const DataSource &source;
  SampleOrder &order;
  int64_t batch;
  Communicator *all = nullptr; ///< null: a single rank
  bool first = true;
  std::vector<int64_t> values, least; ///< for each row and field: the checksum and its negative
};

} // namespace cleave
