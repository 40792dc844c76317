// Reads and writes cluster files.
#include "partitioner/cluster/Cluster.h"

#include "partitioner/toml/Toml.h"
#include "runtime/base/Error.h"
#include "runtime/base/InputFile.h"
#include "runtime/base/Nearest.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <numeric>
#include <sstream>

namespace cleave::partitioner {

static constexpr std::array<std::string_view, rateCount> rateNames{"fp32", "tf32", "fp16", "bf16"};
static constexpr std::array<std::string_view, constantCount> constantNames{"launch_us",
                                                                           "half_size",
                                                                           "convolution_half_size",
                                                                           "function_ns",
                                                                           "product_fp32",
                                                                           "product_tf32",
                                                                           "product_fp16",
                                                                           "product_bf16",
                                                                           "convolution_fp32",
                                                                           "convolution_tf32",
                                                                           "convolution_fp16",
                                                                           "convolution_bf16",
                                                                           "attention_forward",
                                                                           "attention_backward",
                                                                           "score_passes_forward",
                                                                           "score_passes_backward",
                                                                           "product_memory",
                                                                           "convolution_memory",
                                                                           "attention_memory",
                                                                           "elementwise",
                                                                           "copy",
                                                                           "lookup",
                                                                           "pooling",
                                                                           "random",
                                                                           "cache_speed",
                                                                           "collectives",
                                                                           "messages",
                                                                           "communication_us"};
static constexpr int64_t mostDevices = 1 << 20;

std::string_view rateName(Rate rate) { return rateNames[static_cast<size_t>(rate)]; }

Rate rateOf(Precision::Type type) {
  switch (type) {
  case Precision::Type::Tf32:
    return Rate::Tf32;
  case Precision::Type::Bf16:
    return Rate::Bf16;
  case Precision::Type::Fp16:
    return Rate::Fp16;
  default:
    return Rate::Fp32;
  }
}

std::string_view constantName(Constant constant) { return constantNames[static_cast<size_t>(constant)]; }

int64_t NodeGroup::devicesPerNode() const {
  int64_t all = 0;
  for (const Devices &some : devices)
    all += some.count;
  return all;
}

GroupRings NodeGroup::rings(std::span<const uint32_t> members) const {
  if (!wiring)
    return {.gbPerS = inside->gbPerS};
  if (!wiring->matrix.empty())
    return ringsOver(*wiring, members);
  if (wiring->pairGbPerS > 0)
    return {.gbPerS = std::min(inside->gbPerS, static_cast<double>(members.size() - 1) * wiring->pairGbPerS)};
  const size_t doublings = static_cast<size_t>(std::bit_width(members.size() - 1)) - 1;
  return {.gbPerS = doublings < wiring->groupGbPerS.size() ? wiring->groupGbPerS[doublings] : inside->gbPerS};
}

void NodeGroup::takeRateOfWires() {
  if (!wiring || wiring->matrix.empty())
    return;
  std::vector<uint32_t> all(wiring->matrix.size());
  std::iota(all.begin(), all.end(), 0);
  inside->gbPerS = rings(all).gbPerS;
}

double NodeGroup::pairGbPerS(uint32_t from, uint32_t to) const {
  if (!wiring)
    return inside->gbPerS;
  if (!wiring->matrix.empty())
    return wiring->wireRate(from, to);
  return wiring->pairGbPerS > 0 ? wiring->pairGbPerS : wiring->groupGbPerS.front();
}

int64_t Cluster::deviceCount() const {
  int64_t all = 0;
  for (const NodeGroup &group : nodes)
    all += group.count * group.devicesPerNode();
  return all;
}

std::vector<Cluster::Place> Cluster::places(int64_t count) const {
  if (count > deviceCount())
    throw userError(fmt::format("the plan has {} ranks, cluster {} has {} device{}; every rank needs one", count, name,
                                deviceCount(), deviceCount() == 1 ? "" : "s"));
  std::vector<Place> places;
  places.reserve(static_cast<size_t>(count));
  int64_t node = 0;
  for (size_t g = 0; g < nodes.size(); ++g)
    for (int64_t n = 0; n < nodes[g].count; ++n, ++node) {
      uint32_t device = 0;
      for (const NodeGroup::Devices &some : nodes[g].devices)
        for (int64_t d = 0; d < some.count; ++d, ++device) {
          if (static_cast<int64_t>(places.size()) == count)
            return places;
          places.push_back({some.kind, g, node, device});
        }
    }
  return places;
}

namespace {

/// Reads one file; every function throws userError with the place of the mistake.
class Reader {
public:
  Reader(const std::string &text, const std::string &file) : file(file), root(parseToml(text, file)) {}

  Cluster read() {
    const std::vector<std::string> keys{"name", "devices", "nodes", "network"};
    for (const TomlEntry &entry : inFileOrder(root))
      checkKey("a cluster", entry, keys);
    if (const toml::node *name = root.get("name"))
      cluster.name = text("name", *name);
    else
      cluster.name = file;
    readDevices();
    readNodes();
    readNetwork();
    return std::move(cluster);
  }

private:
  void checkKey(const std::string &what, const TomlEntry &entry, const std::vector<std::string> &known) const {
    if (std::ranges::find(known, entry.key) == known.end())
      throw userError(fmt::format("{}: {} has {}, not \"{}\"{}", at(file, *entry.value), what, fmt::join(known, ", "),
                                  entry.key, suggestion(entry.key, known)));
  }

  std::string text(const std::string &key, const toml::node &node) const {
    if (const auto value = node.value<std::string>(); value && node.is_string())
      return *value;
    throw userError(fmt::format("{}: {} must be a string", at(file, node), key));
  }

  const toml::table &table(const std::string &key, const toml::node &node, const char *example) const {
    if (const toml::table *found = node.as_table())
      return *found;
    throw userError(fmt::format("{}: {} must be a table like {}", at(file, node), key, example));
  }

  /// `fromZero`: whether zero is allowed.
  double number(const std::string &key, const toml::node &node, bool fromZero = false) const {
    const auto value = node.value<double>();
    if (!node.is_number() || !value)
      throw userError(fmt::format("{}: {} must be a number", at(file, node), key));
    if (!(*value >= (fromZero ? 0 : 1e-6) && *value <= 1e12))
      throw userError(fmt::format("{}: {} must be at least {} and at most 1e12, it is {}", at(file, node), key,
                                  fromZero ? "0" : "1e-6", *value));
    return *value;
  }

  int64_t count(const std::string &key, const toml::node &node) const {
    const auto value = node.value<int64_t>();
    if (!node.is_integer() || !value)
      throw userError(fmt::format("{}: {} must be a whole number", at(file, node), key));
    if (*value < 1 || *value > mostDevices)
      throw userError(
          fmt::format("{}: {} must be between 1 and {}, it is {}", at(file, node), key, mostDevices, *value));
    return *value;
  }

  const toml::node &required(const std::string &what, const toml::table &given, const char *key) const {
    if (const toml::node *node = given.get(key))
      return *node;
    throw userError(fmt::format("{}: {} needs {}", at(file, given), what, key));
  }

  /// `bandwidth`: the key of the bandwidth.
  Link link(const std::string &what, const toml::node &node, const char *bandwidth) const {
    const toml::table &given = table(what, node, "{ gb_per_s = 25.0, latency_us = 5.0 }");
    for (const TomlEntry &entry : inFileOrder(given))
      checkKey(what, entry, {bandwidth, "latency_us"});
    const std::string of = what + ".";
    return {number(of + bandwidth, required(what, given, bandwidth)),
            number(of + "latency_us", required(what, given, "latency_us"), true)};
  }

  DeviceKind device(const std::string &name, const toml::node &node) const {
    const std::string what = "devices." + name;
    const toml::table &given =
        table(what, node, "[devices.NAME] with backend, memory_gib, memory_gb_per_s, peak_tflops");
    for (const TomlEntry &entry : inFileOrder(given))
      checkKey(what, entry,
               {"backend", "memory_gib", "memory_gb_per_s", "peak_tflops", "fused_attention", "cache", "constants"});
    DeviceKind kind{.name = name, .backend = {}, .memoryGib = 0, .memoryGbPerS = 0};
    const toml::node &backend = required(what, given, "backend");
    kind.backend = text(what + ".backend", backend);
    if (kind.backend != "cpu" && kind.backend != "cuda")
      throw userError(fmt::format("{}: {}.backend must be cpu or cuda, it is \"{}\"{}", at(file, backend), what,
                                  kind.backend, suggestion(kind.backend, {"cpu", "cuda"})));
    kind.memoryGib = number(what + ".memory_gib", required(what, given, "memory_gib"));
    kind.memoryGbPerS = number(what + ".memory_gb_per_s", required(what, given, "memory_gb_per_s"));
    const toml::node &peaks = required(what, given, "peak_tflops");
    const toml::table &rates = table(what + ".peak_tflops", peaks, "{ fp32 = 19.5, bf16 = 312.0 }");
    for (const TomlEntry &entry : inFileOrder(rates)) {
      checkKey(what + ".peak_tflops", entry, {rateNames.begin(), rateNames.end()});
      const size_t rate = static_cast<size_t>(std::ranges::find(rateNames, entry.key) - rateNames.begin());
      kind.peakTflops[rate] = number(what + ".peak_tflops." + entry.key, *entry.value);
    }
    if (const toml::node *fused = given.get("fused_attention"))
      kind.fusedAttention = fusedAttention(what + ".fused_attention", *fused, kind.backend);
    if (const toml::node *cache = given.get("cache"))
      kind.cache = cacheOf(what + ".cache", *cache);
    if (const toml::node *constants = given.get("constants"))
      readConstants(what + ".constants", *constants, kind);
    if (!kind.has(Rate::Fp32)) // every plan computes sums in fp32
      throw userError(fmt::format("{}: {}.peak_tflops needs fp32", at(file, peaks), what));
    return kind;
  }

  Cache cacheOf(const std::string &what, const toml::node &node) const {
    const toml::table &given = table(what, node, "{ mib = 16.0, gb_per_s = 60.0 }");
    for (const TomlEntry &entry : inFileOrder(given))
      checkKey(what, entry, {"mib", "gb_per_s"});
    return {number(what + ".mib", required(what, given, "mib")),
            number(what + ".gb_per_s", required(what, given, "gb_per_s"))};
  }

  void readConstants(const std::string &what, const toml::node &node, DeviceKind &kind) const {
    for (const TomlEntry &entry : inFileOrder(table(what, node, "{ launch_us = 1.2, product_fp32 = 0.85 }"))) {
      checkKey(what, entry, {constantNames.begin(), constantNames.end()});
      const size_t constant = static_cast<size_t>(std::ranges::find(constantNames, entry.key) - constantNames.begin());
      kind.constants[constant] = number(what + "." + entry.key, *entry.value);
    }
  }

  bool fusedAttention(const std::string &key, const toml::node &node, const std::string &backend) const {
    const auto value = node.value<bool>();
    if (!node.is_boolean() || !value)
      throw userError(fmt::format("{}: {} must be true or false", at(file, node), key));
    if (backend != "cuda")
      throw userError(fmt::format("{}: {} is for devices with backend cuda", at(file, node), key));
    return *value;
  }

  void readDevices() {
    const toml::node *node = root.get("devices");
    if (!node)
      throw userError(fmt::format("{}: a cluster needs devices: a table [devices.NAME] for every kind", file));
    const toml::table &kinds = table("devices", *node, "[devices.NAME]");
    for (const TomlEntry &entry : inFileOrder(kinds))
      cluster.devices.push_back(device(entry.key, *entry.value));
    if (cluster.devices.empty())
      throw userError(fmt::format("{}: devices is empty; a cluster needs at least one kind", at(file, *node)));
  }

  NodeGroup group(const toml::node &node) const {
    const toml::table &given = table("nodes", node, "[[nodes]] with count, devices, inside");
    for (const TomlEntry &entry : inFileOrder(given))
      checkKey("nodes", entry, {"count", "devices", "inside"});
    NodeGroup made;
    if (const toml::node *times = given.get("count"))
      made.count = count("nodes.count", *times);
    const toml::node &devices = required("nodes", given, "devices");
    std::vector<std::string> names;
    for (const DeviceKind &kind : cluster.devices)
      names.push_back(kind.name);
    for (const TomlEntry &entry : inFileOrder(table("nodes.devices", devices, "{ a100-80g = 8 }"))) {
      const size_t kind = static_cast<size_t>(std::ranges::find(names, entry.key) - names.begin());
      if (kind == names.size())
        throw userError(fmt::format("{}: nodes.devices names \"{}\", which is no device of this cluster: {}{}",
                                    at(file, *entry.value), entry.key, fmt::join(names, ", "),
                                    suggestion(entry.key, names)));
      made.devices.push_back({kind, count("nodes.devices." + entry.key, *entry.value)});
    }
    if (made.devices.empty())
      throw userError(fmt::format("{}: nodes.devices is empty; a node needs at least one device", at(file, devices)));
    if (const toml::node *inside = given.get("inside"))
      readInside(*inside, made);
    else if (made.devicesPerNode() > 1)
      throw userError(fmt::format("{}: nodes with {} devices need inside, the link between them", at(file, given),
                                  made.devicesPerNode()));
    return made;
  }

  /// The links of a node: a rate for all groups, a rate by their size, or every pair's.
  void readInside(const toml::node &node, NodeGroup &made) const {
    const std::string what = "nodes.inside";
    const toml::table &given = table(what, node, "{ gb_per_s = 25.0, latency_us = 5.0 }");
    for (const TomlEntry &entry : inFileOrder(given))
      checkKey(what, entry, {"gb_per_s", "latency_us", "pair_gb_per_s", "group_gb_per_s", "links", "link_gb_per_s"});
    const double latency = number(what + ".latency_us", required(what, given, "latency_us"), true);
    const toml::node *matrix = given.get("links"), *pair = given.get("pair_gb_per_s"),
                     *groups = given.get("group_gb_per_s");
    if (matrix)
      for (const char *other : {"gb_per_s", "pair_gb_per_s", "group_gb_per_s"})
        if (const toml::node *both = given.get(other))
          throw userError(fmt::format("{}: {} has {} or links, not both", at(file, *both), what, other));
    if (pair && groups)
      throw userError(fmt::format("{}: {} has pair_gb_per_s or group_gb_per_s, not both", at(file, *groups), what));
    if (const toml::node *rates = given.get("link_gb_per_s"); rates && !matrix)
      throw userError(fmt::format("{}: {}.link_gb_per_s is for links, which the table lacks", at(file, *rates), what));
    if (matrix) {
      made.wiring = wiring(*matrix, required(what, given, "link_gb_per_s"), made.devicesPerNode());
      made.inside = Link{.latencyUs = latency};
      made.takeRateOfWires();
      return;
    }
    made.inside = Link{number(what + ".gb_per_s", required(what, given, "gb_per_s")), latency};
    if (pair)
      made.wiring = Wiring{.pairGbPerS = number(what + ".pair_gb_per_s", *pair)};
    if (groups)
      made.wiring = Wiring{.groupGbPerS = groupRates(*groups)};
  }

  std::vector<double> groupRates(const toml::node &node) const {
    const toml::array *given = node.as_array();
    if (!given || given->empty())
      throw userError(fmt::format("{}: nodes.inside.group_gb_per_s must be an array of the rates of groups of 2, 4, "
                                  "8, ... devices",
                                  at(file, node)));
    std::vector<double> rates;
    for (const toml::node &each : *given)
      rates.push_back(number("nodes.inside.group_gb_per_s", each));
    return rates;
  }

  Wiring wiring(const toml::node &links, const toml::node &rates, int64_t devices) const {
    const toml::array *rows = links.as_array();
    if (!rows)
      throw userError(
          fmt::format("{}: nodes.inside.links must be an array of rows like \"X NV1 SYS\"", at(file, links)));
    if (devices < 2 || devices > int64_t{Wiring::mostDevices})
      throw userError(fmt::format("{}: nodes.inside.links is for nodes with 2 to {} devices, this one has {}",
                                  at(file, links), Wiring::mostDevices, devices));
    if (static_cast<int64_t>(rows->size()) != devices)
      throw userError(fmt::format("{}: nodes.inside.links has {} rows, the node has {} devices", at(file, links),
                                  rows->size(), devices));
    Wiring made;
    for (const toml::node &row : *rows)
      made.matrix.push_back(wireRow(row, made.matrix, devices));
    for (const TomlEntry &entry : inFileOrder(table("nodes.inside.link_gb_per_s", rates, "{ NV = 25.0, SYS = 9.0 }"))) {
      checkKey("nodes.inside.link_gb_per_s", entry, {wireNames().begin() + 1, wireNames().end()});
      made.wireGbPerS[static_cast<size_t>(std::ranges::find(wireNames(), entry.key) - wireNames().begin())] =
          number("nodes.inside.link_gb_per_s." + entry.key, *entry.value);
    }
    for (const std::vector<Wire> &row : made.matrix)
      for (const Wire &wire : row)
        if (wire.kind != WireKind::Self && made.wireGbPerS[static_cast<size_t>(wire.kind)] == 0)
          throw userError(fmt::format("{}: nodes.inside.link_gb_per_s needs {}, which nodes.inside.links has",
                                      at(file, rates), wireNames()[static_cast<size_t>(wire.kind)]));
    return made;
  }

  /// A row of the matrix, which must agree with the rows above it.
  std::vector<Wire> wireRow(const toml::node &node, const std::vector<std::vector<Wire>> &above,
                            int64_t devices) const {
    const size_t a = above.size();
    std::istringstream words(text("nodes.inside.links", node));
    std::vector<Wire> row;
    int nvlinks = 0;
    for (std::string word; words >> word;) {
      const std::optional<Wire> wire = parseWire(word);
      if (!wire)
        throw userError(
            fmt::format("{}: nodes.inside.links has X, NV1 to NV{}, PIX, PXB, PHB, NODE and SYS, not \"{}\"",
                        at(file, node), mostNvlinks, word));
      row.push_back(*wire);
      nvlinks += wire->kind == WireKind::Nvlink ? wire->count : 0;
    }
    if (static_cast<int64_t>(row.size()) != devices)
      throw userError(fmt::format("{}: row {} of nodes.inside.links has {} links, the node has {} devices",
                                  at(file, node), a, row.size(), devices));
    for (size_t b = 0; b < row.size(); ++b) {
      if ((row[b].kind == WireKind::Self) != (a == b))
        throw userError(fmt::format("{}: nodes.inside.links has X exactly where a device meets itself; device {} has "
                                    "{} to device {}",
                                    at(file, node), a, wireText(row[b]), b));
      if (b < a && row[b] != above[b][a])
        throw userError(fmt::format("{}: nodes.inside.links must be symmetric; device {} has {} to device {}, which "
                                    "has {}",
                                    at(file, node), a, wireText(row[b]), b, wireText(above[b][a])));
    }
    if (nvlinks > mostNvlinks)
      throw userError(fmt::format("{}: a device has at most {} NVLinks, device {} of nodes.inside.links has {}; where "
                                  "a switch connects all devices, give gb_per_s instead",
                                  at(file, node), mostNvlinks, a, nvlinks));
    return row;
  }

  void readNodes() {
    const toml::node *node = root.get("nodes");
    if (!node)
      throw userError(
          fmt::format("{}: a cluster needs nodes: an entry [[nodes]] for every group of equal nodes", file));
    const toml::array *groups = node->as_array();
    if (!groups)
      throw userError(fmt::format("{}: nodes must be an array of tables: [[nodes]]", at(file, *node)));
    for (const toml::node &each : *groups) {
      cluster.nodes.push_back(group(each));
      if (cluster.deviceCount() > mostDevices)
        throw userError(fmt::format("{}: a cluster has at most {} devices, with this group it has {}", at(file, each),
                                    mostDevices, cluster.deviceCount()));
    }
    if (cluster.nodes.empty())
      throw userError(fmt::format("{}: nodes is empty; a cluster needs at least one node", at(file, *node)));
  }

  void readNetwork() {
    int64_t nodes = 0;
    for (const NodeGroup &group : cluster.nodes)
      nodes += group.count;
    if (const toml::node *node = root.get("network"))
      cluster.network = link("network", *node, "gb_per_s_per_node");
    else if (nodes > 1)
      throw userError(fmt::format("{}: a cluster of {} nodes needs network, the link between them", file, nodes));
  }

  const std::string &file;
  toml::table root;
  Cluster cluster;
};

} // namespace

Cluster Cluster::parse(const std::string &text, const std::string &file) { return Reader(text, file).read(); }

std::shared_ptr<const ClusterFile> ClusterFile::parse(const std::string &text, const std::string &file) {
  return std::make_shared<const ClusterFile>(text, Cluster::parse(text, file));
}

Cluster Cluster::load(const std::string &path) { return parse(readTextFile(path, Status::User, 16 << 20), path); }

/// A number as TOML, with a point or an exponent, so that it is not read as an integer, which may not fit 64 bits.
static std::string decimal(double value) {
  const std::string text = fmt::format("{}", value);
  return text.find_first_of(".e") == std::string::npos ? text + ".0" : text;
}

static std::string linkText(const char *bandwidth, const Link &link) {
  return fmt::format("{} = {}, latency_us = {}", bandwidth, decimal(link.gbPerS), decimal(link.latencyUs));
}

static std::string insideText(const NodeGroup &group) {
  if (!group.wiring)
    return fmt::format("inside = {{ {} }}\n", linkText("gb_per_s", *group.inside));
  const Wiring &wiring = *group.wiring;
  std::vector<std::string> words;
  if (wiring.matrix.empty()) {
    std::transform(wiring.groupGbPerS.begin(), wiring.groupGbPerS.end(), std::back_inserter(words), decimal);
    return fmt::format("inside = {{ {}, {} }}\n", linkText("gb_per_s", *group.inside),
                       words.empty() ? "pair_gb_per_s = " + decimal(wiring.pairGbPerS)
                                     : fmt::format("group_gb_per_s = [{}]", fmt::join(words, ", ")));
  }
  for (size_t kind = 0; kind < wireKindCount; ++kind)
    if (wiring.wireGbPerS[kind] > 0)
      words.push_back(fmt::format("{} = {}", wireNames()[kind], decimal(wiring.wireGbPerS[kind])));
  std::string out = fmt::format("[nodes.inside]\nlatency_us = {}\nlink_gb_per_s = {{ {} }}\nlinks = [\n",
                                decimal(group.inside->latencyUs), fmt::join(words, ", "));
  for (const std::vector<Wire> &row : wiring.matrix) {
    std::string line;
    for (const Wire &wire : row)
      line += fmt::format("{}{:<4}", line.empty() ? "" : " ", wireText(wire));
    out += fmt::format("  \"{}\",\n", line.substr(0, line.find_last_not_of(' ') + 1));
  }
  return out + "]\n";
}

std::string Cluster::toToml() const {
  std::string out = fmt::format("name = {}\n", quote(name));
  for (const DeviceKind &kind : devices) {
    std::vector<std::string> peaks;
    for (size_t rate = 0; rate < rateCount; ++rate)
      if (kind.peakTflops[rate] > 0)
        peaks.push_back(fmt::format("{} = {}", rateNames[rate], decimal(kind.peakTflops[rate])));
    out += fmt::format("\n[devices.{}]\nbackend = {}\nmemory_gib = {}\nmemory_gb_per_s = {}\npeak_tflops = {{ {} }}\n",
                       quote(kind.name), quote(kind.backend), decimal(kind.memoryGib), decimal(kind.memoryGbPerS),
                       fmt::join(peaks, ", "));
    if (kind.cache)
      out +=
          fmt::format("cache = {{ mib = {}, gb_per_s = {} }}\n", decimal(kind.cache->mib), decimal(kind.cache->gbPerS));
    if (kind.fusedAttention)
      out += fmt::format("fused_attention = {}\n", *kind.fusedAttention);
    std::vector<std::string> constants;
    for (size_t i = 0; i < constantCount; ++i)
      if (kind.constants[i])
        constants.push_back(fmt::format("{} = {}", constantNames[i], decimal(*kind.constants[i])));
    if (!constants.empty())
      out += fmt::format("constants = {{ {} }}\n", fmt::join(constants, ", "));
  }
  for (const NodeGroup &group : nodes) {
    std::vector<std::string> counts;
    for (const NodeGroup::Devices &some : group.devices)
      counts.push_back(fmt::format("{} = {}", quote(devices[some.kind].name), some.count));
    out += fmt::format("\n[[nodes]]\ncount = {}\ndevices = {{ {} }}\n", group.count, fmt::join(counts, ", "));
    if (group.inside)
      out += insideText(group);
  }
  if (network)
    out += fmt::format("\n[network]\ngb_per_s_per_node = {}\nlatency_us = {}\n", decimal(network->gbPerS),
                       decimal(network->latencyUs));
  return out;
}

} // namespace cleave::partitioner
