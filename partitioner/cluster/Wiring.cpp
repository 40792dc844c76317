// Words of `nvidia-smi topo -m`, and rings over the links of a group.
#include "partitioner/cluster/Wiring.h"

#include <algorithm>
#include <cassert>
#include <charconv>
#include <cmath>
#include <fmt/format.h>
#include <utility>

namespace cleave::partitioner {

const std::array<std::string_view, wireKindCount> &wireNames() {
  static constexpr std::array<std::string_view, wireKindCount> names{"X", "NV", "PIX", "PXB", "PHB", "NODE", "SYS"};
  return names;
}

std::optional<Wire> parseWire(std::string_view text) {
  if (text.starts_with("NV")) {
    int count = 0;
    const auto [end, error] = std::from_chars(text.data() + 2, text.data() + text.size(), count);
    if (error != std::errc() || end != text.data() + text.size() || count < 1 || count > mostNvlinks)
      return std::nullopt;
    return Wire{WireKind::Nvlink, static_cast<uint8_t>(count)};
  }
  const auto found = std::ranges::find(wireNames(), text);
  if (found == wireNames().end())
    return std::nullopt;
  return Wire{static_cast<WireKind>(found - wireNames().begin()), 1};
}

std::string wireText(const Wire &wire) {
  return wire.kind == WireKind::Nvlink ? fmt::format("NV{}", wire.count)
                                       : std::string(wireNames()[static_cast<size_t>(wire.kind)]);
}

namespace {

using Square = std::array<std::array<int, Wiring::mostDevices>, Wiring::mostDevices>;

/// Searches edge-disjoint Hamiltonian cycles of a multigraph, one after the other, depth first. A hop takes one of the
/// links between two devices; hops with most links left are tried first. Stops after a fixed number of hops, or when
/// no device has links for another ring.
class DisjointRings {
public:
  DisjointRings(size_t count, const Square &links) : count(count), left(links) {}

  /// How many rings use the links between each two devices.
  Square search() {
    most = possible();
    extend();
    return best;
  }
  int rings() const { return mostRings; }

private:
  /// Rings for which every device has two links left.
  int possible() const {
    int least = INT32_MAX;
    for (size_t i = 0; i < count; ++i) {
      int links = 0;
      for (size_t j = 0; j < count; ++j)
        links += left[i][j];
      least = std::min(least, links / 2);
    }
    return least;
  }

  void take(size_t a, size_t b, int links) {
    left[a][b] -= links, left[b][a] -= links;
    used[a][b] += links, used[b][a] += links;
  }

  void extend() {
    const size_t at = path.back();
    if (path.size() == count) {
      if (left[at][0] > 0)
        close(at);
      return;
    }
    std::vector<size_t> next;
    for (size_t j = 1; j < count; ++j)
      if (left[at][j] > 0 && !(visited & 1u << j))
        next.push_back(j);
    std::sort(next.begin(), next.end(),
              [&](size_t a, size_t b) { return left[at][a] != left[at][b] ? left[at][a] > left[at][b] : a < b; });
    for (const size_t j : next) {
      if (done || --budget < 0)
        return;
      take(at, j, 1), path.push_back(j), visited |= 1u << j;
      extend();
      visited &= ~(1u << j), path.pop_back(), take(at, j, -1);
    }
  }

  /// The ring is complete: notes it, and searches for another one.
  void close(size_t at) {
    take(at, 0, 1);
    if (++found > mostRings)
      mostRings = found, best = used;
    done = mostRings == most;
    if (found + possible() > mostRings) {
      std::vector<size_t> ring = std::exchange(path, {0});
      const uint32_t members = std::exchange(visited, 0);
      extend();
      path = std::move(ring), visited = members;
    }
    --found;
    take(at, 0, -1);
  }

  const size_t count;
  Square left, used{}, best{};
  std::vector<size_t> path{0};
  uint32_t visited = 0;
  int found = 0, mostRings = 0, most = 0;
  int budget = 50'000; ///< hops
  bool done = false;   ///< no choice of rings can be better
};

/// A Hamiltonian cycle over the pairs for which `allowed[a]` has bit b, as the order of devices; empty if there is
/// none. Dynamic programming over the sets of devices of a path that begins at device 0 (Held and Karp, 1962).
std::vector<uint32_t> hamiltonianCycle(size_t count, const std::vector<uint32_t> &allowed) {
  const uint32_t all = (1u << count) - 1;
  std::vector<uint32_t> ends(all + 1, 0); // by set: the devices at which a path over the set can end
  ends[1] = 1;
  for (uint32_t set = 1; set <= all; set += 2)
    for (size_t v = 0; v < count; ++v)
      if (ends[set] & 1u << v)
        for (size_t w = 1; w < count; ++w)
          if (allowed[v] & ~set & 1u << w)
            ends[set | 1u << w] |= 1u << w;
  const auto one = [&](uint32_t set, uint32_t to) {
    uint32_t v = 0;
    while (v < count && !(ends[set] & allowed[to] & 1u << v))
      ++v;
    return v;
  };
  std::vector<uint32_t> ring;
  uint32_t set = all;
  for (uint32_t at = one(all, 0); set != 1; at = one(set, at)) {
    if (at == count)
      return {};
    ring.push_back(at);
    set &= ~(1u << at);
  }
  ring.push_back(0);
  return ring;
}

/// The ring whose slowest hop is fastest.
GroupRings widestRing(const Wiring &wiring, std::span<const uint32_t> members) {
  std::vector<double> rates;
  for (const uint32_t a : members)
    for (const uint32_t b : members)
      if (a != b)
        rates.push_back(wiring.wireRate(a, b));
  std::sort(rates.begin(), rates.end(), std::greater<>());
  rates.erase(std::unique(rates.begin(), rates.end()), rates.end());
  for (const double rate : rates) {
    std::vector<uint32_t> allowed(members.size(), 0);
    for (size_t i = 0; i < members.size(); ++i)
      for (size_t j = 0; j < members.size(); ++j)
        if (i != j && wiring.wireRate(members[i], members[j]) >= rate)
          allowed[i] |= 1u << j;
    const std::vector<uint32_t> order = hamiltonianCycle(members.size(), allowed);
    if (order.empty())
      continue;
    GroupRings rings{.gbPerS = rate};
    for (size_t i = 0; i < order.size(); ++i) {
      const uint32_t from = members[order[i]], to = members[order[(i + 1) % order.size()]];
      const bool nvlink = wiring.matrix[from][to].kind == WireKind::Nvlink;
      rings.hops.push_back({from, to, rate / wiring.wireRate(from, to), nvlink});
      rings.nvlink &= nvlink;
    }
    return rings;
  }
  assert(false && "every two devices of a matrix are connected");
  return {};
}

} // namespace

GroupRings ringsOver(const Wiring &wiring, std::span<const uint32_t> members) {
  const size_t count = members.size();
  const auto linksOf = [&](size_t i, size_t j) {
    const Wire &wire = wiring.matrix[members[i]][members[j]];
    return i != j && wire.kind == WireKind::Nvlink ? int(wire.count) : 0;
  };
  if (count == 2)
    return widestRing(wiring, members); // a ring over all links of the pair
  Square links{};
  for (size_t i = 0; i < count; ++i)
    for (size_t j = 0; j < count; ++j)
      links[i][j] = linksOf(i, j);
  DisjointRings search(count, links);
  const Square used = search.search();
  if (search.rings() == 0)
    return widestRing(wiring, members);
  GroupRings rings{.gbPerS = 2 * search.rings() * wiring.wireGbPerS[static_cast<size_t>(WireKind::Nvlink)]};
  for (uint32_t i = 0; i < count; ++i)
    for (uint32_t j = 0; j < count; ++j)
      if (used[i][j] > 0)
        rings.hops.push_back({members[i], members[j], double(used[i][j]) / links[i][j], true});
  return rings;
}

} // namespace cleave::partitioner
