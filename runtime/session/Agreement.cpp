// Compares the configurations of ranks.
#include "runtime/session/Agreement.h"
#include "runtime/base/Error.h"
#include "runtime/base/InputFile.h"
#include "runtime/base/Printable.h"
#include "runtime/base/Sha256.h"
#include "runtime/data/DataFunction.h"
#include "runtime/device/CpuDevice.h"
#include "runtime/plan/DTypes.h"

#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <map>
#include <string_view>

namespace cleave {

static std::vector<uint8_t> pack(const ValuesToAgree &values) {
  std::vector<uint8_t> bytes;
  for (const auto &[name, value] : values)
    for (const std::string &text : {name, value}) {
      bytes.insert(bytes.end(), text.begin(), text.end());
      bytes.push_back(0);
    }
  return bytes;
}

static std::map<std::string, std::string> unpack(const std::vector<uint8_t> &bytes) {
  std::vector<std::string> texts(1);
  for (const uint8_t byte : bytes)
    if (byte == 0)
      texts.emplace_back();
    else
      texts.back().push_back(static_cast<char>(byte));
  std::map<std::string, std::string> values;
  for (size_t i = 0; i + 1 < texts.size(); i += 2)
    values[texts[i]] = texts[i + 1];
  return values;
}

void compareAmongRanks(RankEndpoint &world, const ValuesToAgree &mine) {
  const auto all = world.gather(pack(mine));
  for (unsigned rank = 1; rank < all.size(); ++rank) {
    const auto theirs = unpack(all[rank]);
    for (const auto &[name, value] : mine) {
      const auto found = theirs.find(name);
      if (found == theirs.end())
        throw userError(fmt::format("rank {} runs another program than rank 0: it has no {}", rank, name));
      if (found->second != value)
        throw userError(
            fmt::format("rank {} was given another {} than rank 0: {}, rank 0 has {}; all ranks must be given "
                        "the same",
                        rank, name, printable(found->second, true), value));
    }
    if (theirs.size() != mine.size())
      throw userError(fmt::format("rank {} runs another program than rank 0: it compares {} values, rank 0 {}", rank,
                                  theirs.size(), mine.size()));
  }
  world.barrier();
}

ValuesToAgree describeData(const DataSource &data, uint64_t seed, DataNeeds needs) {
  ValuesToAgree values;
  std::string fields;
  for (const DataField &field : data.fields())
    fields += fmt::format("{}{} {} [{}]", fields.empty() ? "" : ", ", field.name, dtypeName(planned(field.dtype)),
                          fmt::join(field.shape, ", "));
  values.emplace_back("--data (its fields)", fields);
  const size_t compared = data.fields().size() - (needs.labels || data.fields().empty() ? 0 : 1);
  for (const Split split : {Split::Train, Split::Eval}) {
    if (!(split == Split::Train ? needs.train : needs.eval))
      continue;
    values.emplace_back(fmt::format("--data (its {} samples)", splitName(split)),
                        fmt::format("{}", data.samples(split)));
    std::vector<Sha256> hashes(compared);
    for (const SampleId &sample : someSamples(data, split)) {
      const std::vector<int64_t> sums = checksums(data, sample, seed, compared);
      for (size_t field = 0; field < compared; ++field)
        hashes[field].update({reinterpret_cast<const uint8_t *>(&sums[field]), sizeof sums[field]});
    }
    for (size_t field = 0; field < compared; ++field)
      values.emplace_back(
          fmt::format("--data (field {} of some {} samples)", data.fields()[field].name, splitName(split)),
          "sha256:" + toHex(hashes[field].finish()).substr(0, 12));
  }
  return values;
}

ValuesToAgree describeProgram() {
  return {{"version of Cleave", CLEAVE_VERSION}, {"version of oneDNN", cpuLibraryVersion()}};
}

} // namespace cleave
