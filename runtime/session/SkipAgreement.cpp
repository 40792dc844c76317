// Rank 0 collects what was skipped, and asks which of it others have found good.
#include "runtime/session/SkipAgreement.h"
#include "runtime/base/Error.h"

#include <algorithm>
#include <array>
#include <fmt/format.h>
#include <iterator>
#include <map>
#include <utility>

namespace cleave {
namespace {

constexpr std::array splits{Split::Train, Split::Eval};

/// A sample of any split as a number: twice its index, and one more in the evaluation split.
using Samples = std::vector<int64_t>;

std::vector<uint8_t> bytesOf(const Samples &samples) {
  const auto *from = reinterpret_cast<const uint8_t *>(samples.data());
  return {from, from + samples.size() * sizeof(int64_t)};
}

Samples samplesIn(const std::vector<uint8_t> &bytes) {
  Samples samples(bytes.size() / sizeof(int64_t));
  std::copy_n(bytes.begin(), samples.size() * sizeof(int64_t), reinterpret_cast<uint8_t *>(samples.data()));
  return samples;
}

} // namespace

int64_t agreeOnSkipped(RankEndpoint &world, const PictureSource &pictures) {
  Samples mine;
  for (size_t split = 0; split < splits.size(); ++split)
    for (const int64_t index : pictures.skipped(splits[split]))
      mine.push_back(2 * index + static_cast<int64_t>(split));
  std::map<int64_t, size_t> by; // the first rank that skipped it
  const auto skipped = world.gather(bytesOf(mine));
  for (size_t rank = 0; rank < skipped.size(); ++rank)
    for (const int64_t sample : samplesIn(skipped[rank]))
      by.emplace(sample, rank);
  Samples all;
  std::ranges::transform(by, std::back_inserter(all), [](const auto &entry) { return entry.first; });
  std::vector<uint8_t> bytes = bytesOf(all);
  world.broadcast(bytes);
  all = samplesIn(bytes);
  if (all.empty())
    return 0;
  std::erase_if(all, [&](int64_t sample) { return !pictures.isGood(splits[size_t(sample % 2)], sample / 2); });
  const auto used = world.gather(bytesOf(all));
  for (size_t rank = 0; rank < used.size(); ++rank)
    for (const int64_t sample : samplesIn(used[rank]))
      throw environmentError(
          fmt::format("{}: damaged as rank {} reads it, good as rank {} reads it, so they have trained "
                      "on different pictures: give all ranks the same files",
                      pictures.name(splits[size_t(sample % 2)], sample / 2), by.at(sample), rank));
  world.barrier();
  return std::ranges::count_if(by, [](const auto &entry) { return entry.first % 2 == 0; });
}

} // namespace cleave
