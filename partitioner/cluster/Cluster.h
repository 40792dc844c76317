// A cluster: the hardware that a plan is made for, described in a file (docs/prediction.md).
//
// Devices have kinds with their datasheet peaks; the fraction of a peak that a kernel reaches belongs to the cost model
// (partitioner/cost). Nodes of one group are equal. Devices are numbered node by node, in the order of the file; rank r
// of a plan runs on device r.
#pragma once
#include "partitioner/cluster/Wiring.h"
#include "runtime/base/Precision.h"

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace cleave::partitioner {

/// The precision of a product's operands.
enum class Rate : uint8_t { Fp32, Tf32, Fp16, Bf16 };
constexpr size_t rateCount = 4;
/// "fp32", "tf32", "fp16", "bf16"
std::string_view rateName(Rate rate);
/// That of products in this precision.
Rate rateOf(Precision::Type type);

/// A device's share of its last cache. Steps whose operands fit into half of it run at its bandwidth.
struct Cache {
  double mib = 0;    ///< MiB
  double gbPerS = 0; ///< 1e9 bytes a second
  double bytes() const { return mib * 1024 * 1024; }
  double bytesPerSecond() const { return gbPerS * 1e9; }
  bool operator==(const Cache &) const = default;
};

/// Constants of the cost model that a cluster file may give instead of those of the device's family
/// (partitioner/cost/Constants.h), in the units of the file. `cleave calibrate` fits them to measurements.
enum class Constant : uint8_t {
  LaunchUs, ///< microseconds of every step
  HalfSize, ///< of products on cores
  ConvolutionHalfSize,
  FunctionNs, ///< nanoseconds of exp, tanh and the like for one element
  // Fractions of the peak.
  ProductFp32,
  ProductTf32,
  ProductFp16,
  ProductBf16,
  ConvolutionFp32,
  ConvolutionTf32,
  ConvolutionFp16,
  ConvolutionBf16,
  AttentionForward,
  AttentionBackward,
  // Passes over the scores of attention that is not fused.
  ScorePassesForward,
  ScorePassesBackward,
  // Fractions of the memory's bandwidth, by class of work; and the cache's rate relative to it.
  ProductMemory,
  ConvolutionMemory,
  AttentionMemory,
  Elementwise,
  Copy,
  Lookup,
  Pooling,
  Random,
  CacheSpeed,
  // Fractions of a link inside a node, and microseconds to start a message or a host's collective.
  Collectives,
  Messages,
  CommunicationUs
};
constexpr size_t constantCount = 28;
/// Its key in the cluster file: "launch_us".
std::string_view constantName(Constant constant);

/// A kind of device, in the units of the file.
struct DeviceKind {
  std::string name;
  std::string backend;                        ///< "cpu" or "cuda"
  double memoryGib = 0;                       ///< GiB
  double memoryGbPerS = 0;                    ///< 1e9 bytes a second
  std::array<double, rateCount> peakTflops{}; ///< by Rate, 1e12 operations a second; 0: the device does not have it
  std::optional<bool> fusedAttention = {};    ///< whether attention is one kernel; none: by the device's constants
  std::optional<Cache> cache = {};            ///< none: by the device's constants
  std::array<std::optional<double>, constantCount> constants = {}; ///< by Constant; none: those of the device's family
  double memoryBytes() const { return memoryGib * 1024 * 1024 * 1024; }
  double memoryBytesPerSecond() const { return memoryGbPerS * 1e9; }
  bool has(Rate rate) const { return peakTflops[static_cast<size_t>(rate)] > 0; }
  double peak(Rate rate) const { return peakTflops[static_cast<size_t>(rate)] * 1e12; } ///< operations a second
  bool operator==(const DeviceKind &) const = default;
};

/// Bandwidth in each direction and latency of a message.
struct Link {
  double gbPerS = 0;    ///< 1e9 bytes a second
  double latencyUs = 0; ///< microseconds
  double bytesPerSecond() const { return gbPerS * 1e9; }
  double latency() const { return latencyUs * 1e-6; } ///< seconds
  bool operator==(const Link &) const = default;
};

/// Equal nodes.
struct NodeGroup {
  int64_t count = 1;
  struct Devices {
    size_t kind; ///< index of Cluster::devices
    int64_t count;
    bool operator==(const Devices &) const = default;
  };
  std::vector<Devices> devices; ///< of one node, in order
  std::optional<Link> inside;   ///< between devices of the node: a device's rate in a group of all devices; none if the
                                ///< node has one device
  std::optional<Wiring> wiring = {}; ///< links of pairs; none: a switch gives a pair all of a device's rate
  int64_t devicesPerNode() const;
  /// The rings of a group of at least two different devices of the node.
  GroupRings rings(std::span<const uint32_t> members) const;
  /// Takes the rate of a group of all devices from `wiring`, if that has a matrix of links.
  void takeRateOfWires();
  /// 1e9 bytes a second from one device to another.
  double pairGbPerS(uint32_t from, uint32_t to) const;
  bool operator==(const NodeGroup &) const = default;
};

struct Cluster {
  std::string name;
  std::vector<DeviceKind> devices;
  std::vector<NodeGroup> nodes;
  std::optional<Link> network; ///< between nodes, shared by a node's devices; none if there is one node

  /// The place of a device.
  struct Place {
    size_t kind;         ///< index of `devices`
    size_t group;        ///< index of `nodes`
    int64_t node;        ///< number of the node in the cluster
    uint32_t device = 0; ///< number of the device in its node
    bool operator==(const Place &) const = default;
  };
  int64_t deviceCount() const;
  /// The places of the first `count` devices. Throws userError if the cluster has fewer.
  std::vector<Place> places(int64_t count) const;

  /// Reads TOML. Throws userError that names file, line, rule and value.
  static Cluster parse(const std::string &toml, const std::string &fileName);
  static Cluster load(const std::string &path);
  /// TOML that parse() reads as an equal cluster.
  std::string toToml() const;
  bool operator==(const Cluster &) const = default;
};

/// A cluster with the text of its file, which plans store.
struct ClusterFile {
  std::string toml;
  Cluster cluster;
  /// Throws as Cluster::parse().
  static std::shared_ptr<const ClusterFile> parse(const std::string &toml, const std::string &fileName);
};

} // namespace cleave::partitioner
