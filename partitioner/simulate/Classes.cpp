// Places ranks on devices, finds the links that their groups and messages use, and refines classes until they are
// stable.
#include "partitioner/simulate/Classes.h"

#include "partitioner/cost/Constants.h"
#include "runtime/base/Error.h"
#include "runtime/plan/check/Defects.h"
#include "runtime/plan/plan_generated.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <map>
#include <set>

namespace cleave::partitioner {

using check::length;

namespace {

/// The places of ranks, and the rates and latencies of the links of groups and messages.
class Topology {
public:
  Topology(const plan::Plan &plan, const Cluster &cluster)
      : plan(plan), cluster(cluster), places(cluster.places(length(plan.ranks()))) {
    for (uint32_t r = 0; r < places.size(); ++r) {
      const DeviceKind &kind = cluster.devices[places[r].kind];
      if (plan.backend() && kind.backend != plan.backend()->string_view())
        throw userError(fmt::format("the plan is for {}, device {} of cluster {}, on which rank {} lies, is for {}",
                                    plan.backend()->str(), kind.name, cluster.name, r, kind.backend));
    }
    countGroups();
    countMessages();
  }

  size_t kindOf(uint32_t rank) const { return places[rank].kind; }

  GroupLinks group(uint32_t index) const {
    const plan::Group &group = *plan.groups()->Get(index);
    const std::map<int64_t, int64_t> nodes = membersByNode(group);
    GroupLinks links{.members = length(group.ranks()), .nodes = static_cast<int64_t>(nodes.size())};
    links.insideRate = links.networkRate = INFINITY;
    for (const auto &[node, count] : nodes)
      links.perNode = std::max(links.perNode, count);
    for (uint32_t i = 0; i < length(group.ranks()); ++i) {
      const uint32_t rank = group.ranks()->Get(i);
      const DeviceConstants &c = constants(rank);
      const int64_t here = nodes.at(places[rank].node);
      links.start = std::max(links.start, c.communicationSeconds);
      if (here > 1) {
        const Link &inside = insideOf(rank);
        links.insideRate = std::min(links.insideRate, inside.bytesPerSecond() * c.insideFraction);
        links.insideLatency = std::max(links.insideLatency, inside.latency());
      }
      if (links.nodes > 1) {
        const auto sharing = static_cast<double>(crossing.at({axisOf(group), places[rank].node}));
        const double node = cluster.network->bytesPerSecond() * c.networkFraction / sharing;
        const double own = c.deviceNetworkBytesPerSecond * c.networkFraction * static_cast<double>(here);
        links.networkRate = std::min({links.networkRate, node, own});
        links.networkLatency = cluster.network->latency();
      }
    }
    if (!std::isfinite(links.insideRate))
      links.insideRate = 0;
    if (!std::isfinite(links.networkRate))
      links.networkRate = 0;
    return links;
  }

  MessageLink message(uint32_t rank, uint32_t entry) const {
    const uint32_t peer = plan.ranks()->Get(rank)->peers()->Get(entry);
    const DeviceConstants &mine = constants(rank), &others = constants(peer);
    MessageLink link{.start = std::max(mine.communicationSeconds, others.communicationSeconds)};
    if (places[rank].node == places[peer].node) {
      const Link &inside = insideOf(rank);
      link.rate = inside.bytesPerSecond() * std::min(mine.messageFraction, others.messageFraction);
      link.latency = inside.latency();
      return link;
    }
    // Messages that a node sends in the same step share its link.
    const int64_t sharing = std::max(sending(rank, peer), sending(peer, rank));
    const double fraction = std::min(mine.networkFraction, others.networkFraction);
    link.rate = fraction * std::min({cluster.network->bytesPerSecond() / static_cast<double>(sharing),
                                     mine.deviceNetworkBytesPerSecond, others.deviceNetworkBytesPerSecond});
    link.latency = cluster.network->latency();
    return link;
  }

private:
  const DeviceConstants &constants(uint32_t rank) const { return constantsOf(cluster.devices[places[rank].kind]); }

  const Link &insideOf(uint32_t rank) const {
    const NodeGroup &group = cluster.nodes[places[rank].group];
    if (!group.inside)
      throw userError(fmt::format("two ranks lie on device {}, which has no link inside its node", rank));
    return *group.inside;
  }

  std::map<int64_t, int64_t> membersByNode(const plan::Group &group) const {
    std::map<int64_t, int64_t> nodes;
    for (uint32_t i = 0; i < length(group.ranks()); ++i)
      ++nodes[places[group.ranks()->Get(i)].node];
    return nodes;
  }

  static std::string axisOf(const plan::Group &group) { return group.axis() ? group.axis()->str() : ""; }

  /// Counts the groups of each axis that cross a node's link. They run collectives at about the same time and share the
  /// link.
  void countGroups() {
    for (uint32_t g = 0; g < length(plan.groups()); ++g) {
      const plan::Group &group = *plan.groups()->Get(g);
      const auto nodes = membersByNode(group);
      if (nodes.size() > 1)
        for (const auto &[node, count] : nodes)
          ++crossing[{axisOf(group), node}];
    }
  }

  /// Counts, for each node and pair of programs, the ranks of the node that send to the other program on another node.
  void countMessages() {
    for (uint32_t r = 0; r < length(plan.ranks()); ++r) {
      const plan::Rank &rank = *plan.ranks()->Get(r);
      std::set<uint32_t> programs;
      for (uint32_t e = 0; e < length(rank.peers()); ++e) {
        const uint32_t peer = rank.peers()->Get(e);
        if (places[peer].node != places[r].node && programs.insert(plan.ranks()->Get(peer)->program()).second)
          ++senders[{places[r].node, {rank.program(), plan.ranks()->Get(peer)->program()}}];
      }
    }
  }

  int64_t sending(uint32_t from, uint32_t to) const {
    const auto found =
        senders.find({places[from].node, {plan.ranks()->Get(from)->program(), plan.ranks()->Get(to)->program()}});
    return found == senders.end() ? 1 : found->second;
  }

  const plan::Plan &plan;
  const Cluster &cluster;
  std::vector<Cluster::Place> places;
  std::map<std::pair<std::string, int64_t>, int64_t> crossing;
  std::map<std::pair<int64_t, std::pair<uint32_t, uint32_t>>, int64_t> senders;
};

using Signature = std::vector<uint64_t>;

/// Numbers values in order of first use; equal values have equal numbers.
template <typename T> class Numbers {
public:
  uint32_t of(const T &value) {
    return numbers.try_emplace(value, static_cast<uint32_t>(numbers.size())).first->second;
  }
  size_t size() const { return numbers.size(); }

private:
  std::map<T, uint32_t> numbers;
};

class Refinement {
public:
  Refinement(const plan::Plan &plan, const Cluster &cluster) : plan(plan), topology(plan, cluster) {
    const uint32_t ranks = length(plan.ranks());
    members.resize(length(plan.groups()));
    for (uint32_t r = 0; r < ranks; ++r)
      for (uint32_t e = 0; e < length(plan.ranks()->Get(r)->groups()); ++e)
        if (firstEntry(r, e) == e)
          members[plan.ranks()->Get(r)->groups()->Get(e)].push_back({r, e});
    Numbers<GroupLinks> groupNumbers;
    for (uint32_t g = 0; g < length(plan.groups()); ++g) {
      groupLinks.push_back(members[g].empty() ? GroupLinks{} : topology.group(g));
      groupLink.push_back(groupNumbers.of(groupLinks.back()));
    }
    Numbers<MessageLink> linkNumbers;
    peerLinks.resize(ranks);
    peerLink.resize(ranks);
    for (uint32_t r = 0; r < ranks; ++r)
      for (uint32_t e = 0; e < length(plan.ranks()->Get(r)->peers()); ++e) {
        peerLinks[r].push_back(topology.message(r, e));
        peerLink[r].push_back(linkNumbers.of(peerLinks[r].back()));
      }
    colours.assign(ranks, 0);
  }

  RankClasses run() {
    for (size_t count = 0;;) {
      const size_t now = refine();
      if (now == count)
        break;
      count = now;
    }
    return result();
  }

private:
  uint32_t firstEntry(uint32_t rank, uint32_t entry) const {
    const auto &groups = *plan.ranks()->Get(rank)->groups();
    uint32_t first = 0;
    while (groups.Get(first) != groups.Get(entry))
      ++first;
    return first;
  }

  /// The members of a group as (class, entry), sorted.
  Signature meetingOf(uint32_t group) const {
    Signature all;
    for (const auto &[rank, entry] : members[group])
      all.push_back(uint64_t{colours[rank]} << 32 | entry);
    std::sort(all.begin(), all.end());
    return all;
  }

  size_t refine() {
    Numbers<Signature> meetings, classes;
    std::vector<uint32_t> meeting;
    for (uint32_t g = 0; g < members.size(); ++g)
      meeting.push_back(meetings.of(meetingOf(g)));
    std::vector<uint32_t> next;
    for (uint32_t r = 0; r < colours.size(); ++r) {
      const plan::Rank &rank = *plan.ranks()->Get(r);
      Signature signature{colours[r], rank.program(), topology.kindOf(r)};
      for (uint32_t e = 0; e < length(rank.groups()); ++e) {
        const uint32_t group = rank.groups()->Get(e);
        signature.push_back(uint64_t{meeting[group]} << 32 | groupLink[group]);
      }
      for (uint32_t e = 0; e < length(rank.peers()); ++e)
        signature.push_back(uint64_t{colours[rank.peers()->Get(e)]} << 32 | peerLink[r][e]);
      next.push_back(classes.of(signature));
    }
    colours = std::move(next);
    return classes.size();
  }

  RankClasses result() const {
    RankClasses made;
    made.classOf = colours;
    Numbers<std::pair<Signature, uint32_t>> meetings;
    for (uint32_t r = 0; r < colours.size(); ++r) {
      if (colours[r] < made.classes.size()) {
        ++made.classes[colours[r]].ranks;
        continue;
      }
      const plan::Rank &rank = *plan.ranks()->Get(r);
      AlikeRanks &one = made.classes.emplace_back(AlikeRanks{.representative = r,
                                                             .ranks = 1,
                                                             .program = rank.program(),
                                                             .kind = topology.kindOf(r),
                                                             .groups = {},
                                                             .peers = {}});
      for (uint32_t e = 0; e < length(rank.groups()); ++e) {
        const uint32_t group = rank.groups()->Get(e);
        const Signature signature = meetingOf(group);
        const uint32_t number = meetings.of({signature, groupLink[group]});
        if (number == made.meetings.size())
          made.meetings.push_back(distinct(signature));
        one.groups.push_back({number, firstEntry(r, e), groupLinks[group]});
      }
      for (uint32_t e = 0; e < length(rank.peers()); ++e)
        one.peers.push_back({colours[rank.peers()->Get(e)], peerLinks[r][e]});
    }
    return made;
  }

  static Meeting distinct(const Signature &signature) {
    Meeting meeting;
    for (uint64_t member : signature) {
      const Meeting::Member one{static_cast<uint32_t>(member >> 32), static_cast<uint32_t>(member)};
      if (meeting.members.empty() || meeting.members.back() != one)
        meeting.members.push_back(one);
    }
    return meeting;
  }

  const plan::Plan &plan;
  Topology topology;
  std::vector<std::vector<std::pair<uint32_t, uint32_t>>> members; ///< per group: rank, entry of its table
  std::vector<GroupLinks> groupLinks;
  std::vector<uint32_t> groupLink; ///< per group: a number that is equal for equal links
  std::vector<std::vector<MessageLink>> peerLinks;
  std::vector<std::vector<uint32_t>> peerLink;
  std::vector<uint32_t> colours;
};

} // namespace

RankClasses classifyRanks(const plan::Plan &plan, const Cluster &cluster) { return Refinement(plan, cluster).run(); }

} // namespace cleave::partitioner
