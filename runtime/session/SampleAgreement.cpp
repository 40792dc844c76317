// Compares checksums by all-reduce, a limited number of rows at a time: the least checksum and the least negative one
// are opposite numbers if all ranks that read a row agree.
#include "runtime/session/SampleAgreement.h"
#include "runtime/base/Error.h"

#include <algorithm>
#include <fmt/format.h>
#include <limits>
#include <numeric>

namespace cleave {

static constexpr int64_t mostRows = 4096;
static constexpr int64_t none = std::numeric_limits<int64_t>::max(); ///< of ranks that do not read a row

SampleAgreement::SampleAgreement(RankEndpoint &world, const DataSource &source, SampleOrder &order, int64_t batch)
    : world(world), source(source), order(order), batch(batch) {
  if (world.size() < 2)
    return;
  std::vector<uint32_t> ranks(world.size());
  std::iota(ranks.begin(), ranks.end(), 0);
  all = &world.group(ranks);
  values.resize(static_cast<size_t>(std::min(batch, mostRows)) * source.fields().size() * 2);
  least = values;
}

void SampleAgreement::compare(const std::vector<RowChecksum> &mine, int64_t step, int64_t epoch, int64_t begin) {
  first = false;
  const size_t fields = source.fields().size();
  auto next = mine.begin();
  for (int64_t from = 0; from < batch; from += mostRows) {
    const int64_t rows = std::min(mostRows, batch - from);
    const size_t pairs = static_cast<size_t>(rows) * fields;
    std::fill(values.begin(), values.end(), none);
    for (; next != mine.end() && next->row < from + rows; ++next) {
      const size_t pair = static_cast<size_t>(next->row - from) * fields + next->field;
      values[2 * pair] = next->sum;
      values[2 * pair + 1] = -next->sum;
    }
    all->allReduce(values.data(), least.data(), static_cast<int64_t>(2 * pairs), plan::DType::I64,
                   plan::ReduceKind::Min);
    for (size_t pair = 0; pair < pairs; ++pair) {
      const int64_t low = least[2 * pair], high = -least[2 * pair + 1];
      if (low == none || low == high)
        continue;
      const auto row = from + static_cast<int64_t>(pair / fields);
      const SampleId sample{Split::Train, (*order.of(epoch))[static_cast<size_t>(begin + row)], epoch};
      refuse(
          fmt::format("data field {} of {} (step {})", source.fields()[pair % fields].name, sampleName(sample), step),
          values[2 * pair], low, high);
    }
  }
}

void SampleAgreement::refuse(const std::string &what, int64_t mine, int64_t low, int64_t high) {
  const int64_t rank = world.rank(), held[2] = {mine == low ? rank : none, mine == high ? rank : none};
  int64_t ranks[2] = {};
  all->allReduce(held, ranks, 2, plan::DType::I64, plan::ReduceKind::Min);
  if (rank != 0) // rank 0 reports this and ends all ranks
    world.barrier();
  throw userError(fmt::format("{}: ranks {} and {} read different values; a sample must depend on (seed, epoch, index) "
                              "alone: draw random numbers from the generator that Dataset::read gets, and give all "
                              "ranks the same files",
                              what, std::min(ranks[0], ranks[1]), std::max(ranks[0], ranks[1])));
}

} // namespace cleave
