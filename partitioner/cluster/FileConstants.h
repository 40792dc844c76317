// The numbers of a cluster file that predictions depend on, under one set of names.
#pragma once
#include "partitioner/cluster/Cluster.h"

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace cleave::partitioner {

/// A positive number of a cluster, except the cost model's constants (DeviceKind::constants).
struct FileConstant {
  std::string name;   ///< its place in the file: "devices.core.peak_tflops.fp32", "nodes.inside.gb_per_s"
  std::string family; ///< what is right or wrong together with it: "devices.core.peak_tflops", "nodes.inside.gb_per_s"
  double value = 0;   ///< in the units of the file
  std::function<void(Cluster &, double)> set;
  std::optional<size_t> kind;  ///< of devices
  std::optional<size_t> group; ///< of nodes; without kind and group it belongs to the network
  bool peak = false;           ///< whether only products, convolutions and attention depend on it
  bool dataSheet = false;      ///< whether datasheets of GPUs have it
};

/// In the order of the file: kinds of devices, groups of nodes, the network.
std::vector<FileConstant> constantsOf(const Cluster &cluster);

} // namespace cleave::partitioner
