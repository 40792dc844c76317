// The links between the devices of one node, where a pair of devices has less than a device's whole rate, and the rate
// that a group of devices gets from them.
//
// Without a switch a group gets what disjoint rings over its own links carry: NCCL's rings use a link for one ring and
// direction at a time (Jeaugey, NCCL 2.0, GTC 2017; Li et al., Evaluating Modern GPU Interconnect, 2019).
#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace cleave::partitioner {

/// What connects two devices, in the words of `nvidia-smi topo -m`. All but NVLink are ways over PCIe.
enum class WireKind : uint8_t { Self, Nvlink, Pix, Pxb, Phb, Node, Sys };
constexpr size_t wireKindCount = 7;
/// By WireKind: "X", "NV", "PIX", "PXB", "PHB", "NODE", "SYS"
const std::array<std::string_view, wireKindCount> &wireNames();

struct Wire {
  WireKind kind = WireKind::Self;
  uint8_t count = 1; ///< NVLinks; 1 for other kinds
  bool operator==(const Wire &) const = default;
};
constexpr int mostNvlinks = 18; ///< of one device (H100 and B200)

/// "NV2", "SYS", ...; none if the text is no such word.
std::optional<Wire> parseWire(std::string_view text);
std::string wireText(const Wire &wire);

/// The links of a node, in 1e9 bytes a second and direction. One of the first three is given.
struct Wiring {
  static constexpr size_t mostDevices = 16; ///< of a matrix

  double pairGbPerS = 0;                      ///< every pair has a link of this rate of its own
  std::vector<double> groupGbPerS = {};       ///< of each device in a ring of 2, 4, 8, ... devices, as measured
  std::vector<std::vector<Wire>> matrix = {}; ///< symmetric

  std::array<double, wireKindCount> wireGbPerS{}; ///< with `matrix`: of one NVLink, and of each kind of way over PCIe

  double wireRate(size_t a, size_t b) const {
    return wireGbPerS[static_cast<size_t>(matrix[a][b].kind)] * matrix[a][b].count;
  }
  bool operator==(const Wiring &) const = default;
};

/// A hop of a group's rings from one device to another, and the share of the link that it uses.
struct RingHop {
  uint32_t from, to; ///< devices of the node
  double share;
  bool nvlink; ///< otherwise the hop uses the PCIe links of both devices
};

/// The rings of a group.
struct GroupRings {
  double gbPerS = 0;              ///< that each member sends, and receives
  bool nvlink = true;             ///< whether all hops are NVLinks
  std::vector<RingHop> hops = {}; ///< with a matrix
};

/// The most edge-disjoint rings that a search finds over the NVLinks of `members`, each used in both directions; if not
/// even one ring exists, the ring over NVLinks and PCIe whose slowest hop is fastest, in one direction. Deterministic.
/// `members`: at least two different devices of a matrix.
GroupRings ringsOver(const Wiring &wiring, std::span<const uint32_t> members);

} // namespace cleave::partitioner
