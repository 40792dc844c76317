// PROGRAM plan --devices 8,16,32 --cluster A.toml,B.toml: how many devices, and which.
#pragma once
#include "cleave/Trainer.h"
#include "runtime/options/GivenOption.h"

#include <optional>
#include <string>
#include <vector>

namespace cleave {

/// The numbers of devices and the clusters of a table.
struct DeviceTable {
  std::vector<int64_t> devices;
  std::vector<std::string> clusters; ///< files

  /// Takes the lists from the command line of `plan` and leaves the first entry of each; nullopt: there is no list.
  /// Throws userError for an entry of --devices that is no count.
  static std::optional<DeviceTable> take(std::vector<GivenOption> &line);

  /// Searches a plan for each row and prints the table, or one JSON object: step, samples/s, efficiency per device
  /// against the first row, memory, strategy and, with RunOptions::samples, hours. Rows without a plan say why. Throws
  /// environmentError if no row has one.
  void print(Trainer &trainer, const RunOptions &options) const;
};

} // namespace cleave
