// Evaluates every sample exactly once, for any loss, with batches of one size.
//
// A loss returns sums over the rows of a batch (cleave/Loss.h). The last samples of a split may not fill a batch.
// Padding rows do not work, because no value is ignored by every loss. Instead the `count` remaining samples fill the
// batch repeatedly. With q = batch / count and s = batch mod count, every sample occurs q times, and the first s of
// them once more:
//
//   sums(batch) = q * sums(count) + sums(s)
//
// sums(s) comes from another batch, filled with those s samples, and so on until s = 0: Euclid's algorithm, which needs
// few batches (one if `count` divides the batch). There is no cancellation of large numbers, and counts stay integers.
// A loss that returns means instead of sums gets the mean over all samples.
#pragma once
#include "runtime/data/Loader.h"

#include <vector>

namespace cleave {

struct EvalBatches {
  std::vector<BatchRef> list; ///< the full batches, then those for the remaining samples
  size_t whole = 0;           ///< number of full batches

  EvalBatches(int64_t samples, int64_t batch) : batch(batch) {
    const int64_t rest = samples % batch, covered = samples - rest;
    for (int64_t first = 0; first < covered; first += batch)
      list.push_back({Split::Eval, 0, first, batch});
    whole = list.size();
    for (int64_t count = rest; count > 0; count = batch % count)
      list.push_back({Split::Eval, 0, covered, count});
  }

  /// From one sum per batch, in the list's order: the sum over every sample of the split.
  double total(const std::vector<double> &sums) const {
    double rest = 0, all = 0;
    for (size_t i = list.size(); i-- > whole;)
      rest = (sums[i] - rest) / static_cast<double>(batch / list[i].count);
    for (size_t i = 0; i < whole; ++i)
      all += sums[i];
    return all + rest;
  }

private:
  int64_t batch;
};

} // namespace cleave
