// Compares the configurations of ranks.
#include "runtime/session/Agreement.h"
#include "runtime/base/Error.h"
#include "runtime/base/Printable.h"
#include "runtime/device/CpuDevice.h"

#include <algorithm>
#include <fmt/format.h>
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

ValuesToAgree describeProgram() {
  return {{"version of Cleave", CLEAVE_VERSION}, {"version of oneDNN", cpuLibraryVersion()}};
}

} // namespace cleave
