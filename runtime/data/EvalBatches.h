// How an evaluation covers every sample exactly once, whatever the loss, with batches of one size.
//
// A loss gives sums over the rows of a batch (cleave/Loss.h). Of the samples of a split a part may be left that fills
// no batch. Nothing that could be written into rows without a sample is ignored by every loss, so no row is without
// one: the `count` samples that are left fill the batch over and over. With q = batch / count and s = batch mod count,
// the first s of them once more:
//
//   sums(batch) = q * sums(count) + sums(s)
//
// sums(s) comes from another batch, filled with those s samples, and so on down to s = 0: Euclid's algorithm, which
// takes few batches (one where `count` divides the batch). No large numbers cancel, and counts stay whole numbers. A
// loss that returns means instead of sums gets the mean over all samples, too.
#pragma once
#include "runtime/data/Loader.h"

#include <vector>

namespace cleave {

struct EvalBatches {
  std::vector<BatchRef> list; ///< the whole batches, then those by which the rest is known
  size_t whole = 0;           ///< so many whole ones

  EvalBatches(int64_t samples, int64_t batch) : batch(batch) {
    const int64_t rest = samples % batch, covered = samples - rest;
    for (int64_t first = 0; first < covered; first += batch)
      list.push_back({Split::Eval, 0, first, batch});
    whole = list.size();
    for (int64_t count = rest; count > 0; count = batch % count)
      list.push_back({Split::Eval, 0, covered, count});
  }

  /// Of one sum of each batch in the list's order: the sum over every sample of the split once.
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
