// Calls the user's data set.
#include "runtime/data/UserData.h"
#include "runtime/base/UserCode.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace cleave {

const std::vector<DataField> &UserData::fields() const {
  return callUser([] { return "data: the fields of the data set"; },
                  [&]() -> const std::vector<DataField> & { return data.fields(); });
}

int64_t UserData::samples(Split split) const {
  const auto what = [&] { return fmt::format("data: the number of {} samples", splitName(split)); };
  const int64_t count = callUser(what, [&] { return data.samples(split); });
  if (count < 0 || count > mostSamples)
    throw userError(fmt::format("{} must lie in [0, {}], found {}", what(), mostSamples, count));
  return count;
}

std::vector<int64_t> UserData::shards(Split split) const {
  const auto what = [&] { return fmt::format("data: the shards of the {} samples", splitName(split)); };
  std::vector<int64_t> firsts = callUser(what, [&] { return data.shards(split); });
  const int64_t count = samples(split);
  for (size_t i = 0; i < firsts.size(); ++i)
    if (firsts[i] < (i ? firsts[i - 1] : 0) || firsts[i] > count || (i == 0 && firsts[i] != 0))
      throw userError(
          fmt::format("{} must begin at 0, ascend and end by {}, found {} at {}", what(), count, firsts[i], i));
  return firsts;
}

std::string UserData::fingerprint(Split split) const {
  return callUser([&] { return fmt::format("data: the fingerprint of the {} samples", splitName(split)); },
                  [&] { return data.fingerprint(split); });
}

void UserData::read(const SampleId &sample, Random &random, std::span<std::byte *const> to) const {
  const auto what = [&] {
    std::vector<std::string> names;
    for (size_t field = 0; field < to.size(); ++field)
      if (to[field])
        names.push_back(data.fields()[field].name);
    return fmt::format("data field{} {} of {}", names.size() == 1 ? "" : "s", fmt::join(names, ", "),
                       sampleName(sample));
  };
  callUser(what, [&] { data.read(sample, random, to); });
}

} // namespace cleave
