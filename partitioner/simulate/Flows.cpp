// Sums what the flows use of the links of one node of each class.
//
// All transfers of a flow have the same speed, and the nodes of a class carry the same flows. So it suffices to look at
// one node of each class, and a link of it has one list of flows with their shares. Links that carry all of their flows
// at full speed are left out, and so are links with the same list as another.
#include "partitioner/simulate/Flows.h"

#include "runtime/plan/Backend.h"
#include "runtime/plan/check/Defects.h"
#include "runtime/plan/plan_generated.h"

#include <algorithm>
#include <map>
#include <set>

namespace cleave::partitioner {

using check::length;

namespace {

/// The streams in which a program communicates, by entry of its tables of groups and peers.
struct ProgramStreams {
  std::map<uint32_t, std::set<uint32_t>> groups, sends, receives;
};

ProgramStreams streamsOf(const plan::Program &program) {
  ProgramStreams streams;
  for (uint32_t s = 0; s < length(program.segments()); ++s)
    for (uint32_t i = 0; i < length(program.segments()->Get(s)->steps()); ++i) {
      const plan::Step &step = *program.segments()->Get(s)->steps()->Get(i);
      if (const auto *collective = step.op_as_Collective())
        streams.groups[collective->group()].insert(step.stream());
      else if (const auto *send = step.op_as_Send())
        streams.sends[send->peer()].insert(step.stream());
      else if (const auto *recv = step.op_as_Recv())
        streams.receives[recv->peer()].insert(step.stream());
    }
  return streams;
}

std::vector<ProgramStreams> allStreams(const plan::Plan &plan) {
  std::vector<ProgramStreams> streams;
  for (uint32_t p = 0; p < length(plan.programs()); ++p)
    streams.push_back(streamsOf(*plan.programs()->Get(p)));
  return streams;
}

/// Finds what the flows use of the links of one node.
class NodeLinks {
public:
  NodeLinks(const plan::Plan &plan, Topology &topology, const RankClasses &ranks,
            const std::vector<ProgramStreams> &streams, bool gpu)
      : plan(plan), topology(topology), ranks(ranks), streams(streams), gpu(gpu) {}

  std::map<uint64_t, FlowShares> operator()(std::span<const uint32_t> node) {
    std::map<uint64_t, FlowShares> here;
    std::map<uint32_t, std::vector<uint32_t>> members; // of groups, on this node
    for (const uint32_t rank : node) {
      const plan::Rank &info = *plan.ranks()->Get(rank);
      std::set<uint32_t> groups;
      for (uint32_t e = 0; e < length(info.groups()); ++e)
        if (groups.insert(info.groups()->Get(e)).second)
          members[info.groups()->Get(e)].push_back(rank);
      addMessagesOf(rank, here);
    }
    for (const auto &[group, on] : members) {
      const plan::Rank &first = *plan.ranks()->Get(on.front());
      uint32_t entry = 0;
      while (first.groups()->Get(entry) != group)
        ++entry;
      const GroupUse &use = ranks.classes[ranks.classOf[on.front()]].groups[entry];
      if (use.links.members > 1)
        for (const LinkUse &each : topology.uses(use.links, on))
          here[each.link][use.meeting] += each.share;
    }
    return here;
  }

private:
  /// A GPU sends one message of a flow after the other, a host all at once.
  void addMessagesOf(uint32_t rank, std::map<uint64_t, FlowShares> &here) {
    const plan::Rank &info = *plan.ranks()->Get(rank);
    const AlikeRanks &own = ranks.classes[ranks.classOf[rank]];
    std::map<uint64_t, FlowShares> mine;
    const auto add = [&](uint32_t flow, const std::vector<LinkUse> &uses) {
      for (const LinkUse &use : uses) {
        double &share = mine[use.link][flow];
        share = gpu ? std::max(share, use.share) : share + use.share;
      }
    };
    for (const auto &[entry, in] : streams[own.program].sends)
      add(own.peers[entry].sent, topology.uses(rank, info.peers()->Get(entry), false));
    for (const auto &[entry, in] : streams[own.program].receives)
      add(own.peers[entry].received, topology.uses(info.peers()->Get(entry), rank, true));
    for (const auto &[link, uses] : mine)
      for (const auto &[flow, share] : uses)
        here[link][flow] += share;
  }

  const plan::Plan &plan;
  Topology &topology;
  const RankClasses &ranks;
  const std::vector<ProgramStreams> &streams; ///< by program
  const bool gpu;
};

class FlowWriter {
public:
  FlowWriter(const plan::Plan &programs, const plan::Plan &plan, Topology &topology, RankClasses &ranks)
      : plan(plan), topology(topology), ranks(ranks), gpu(backendOf(programs) == Target::Kind::Cuda),
        streams(allStreams(programs)) {}

  void write(const std::vector<std::vector<uint32_t>> &nodes) {
    addMeetings();
    addMessages();
    NodeLinks linksOf(plan, topology, ranks, streams, gpu);
    for (const std::vector<uint32_t> &node : nodes)
      for (auto &[link, uses] : linksOf(node))
        links.insert(std::move(uses));
    for (const auto &uses : links)
      for (const auto &[flow, share] : uses)
        ranks.flows[flow].stretch = std::max(ranks.flows[flow].stretch, share);
    for (Flow &flow : ranks.flows)
      flow.rate /= flow.stretch;
    shareLinks();
  }

private:
  void addMeetings() {
    ranks.flows.resize(ranks.meetings.size());
    together.assign(ranks.meetings.size(), 1);
    for (const AlikeRanks &one : ranks.classes)
      for (uint32_t e = 0; e < one.groups.size(); ++e) {
        const GroupUse &group = one.groups[e];
        ranks.flows[group.meeting].rate = group.links.members > 1 ? busRate(group.links) : 0;
        std::set<uint32_t> &used = meetingStreams[{group.meeting, one.representative}];
        if (const auto found = streams[one.program].groups.find(e); found != streams[one.program].groups.end())
          used.insert(found->second.begin(), found->second.end());
        if (gpu)
          together[group.meeting] = std::max(together[group.meeting], used.size());
      }
  }

  /// A flow for every two classes of which one sends to the other.
  void addMessages() {
    std::map<std::pair<uint32_t, uint32_t>, uint32_t> numbers;
    const auto flowOf = [&](uint32_t from, uint32_t to, double rate) {
      const auto [found, added] = numbers.try_emplace({from, to}, uint32_t(ranks.flows.size()));
      if (added)
        ranks.flows.push_back({.rate = rate, .uses = {}}), together.push_back(1);
      return found->second;
    };
    for (uint32_t c = 0; c < ranks.classes.size(); ++c)
      for (uint32_t e = 0; e < ranks.classes[c].peers.size(); ++e) {
        PeerUse &peer = ranks.classes[c].peers[e];
        peer.sent = flowOf(c, peer.peerClass, peer.link.rate);
        peer.received = flowOf(peer.peerClass, c, peer.link.rate);
        const auto &sends = streams[ranks.classes[c].program].sends;
        if (const auto found = sends.find(e); gpu && found != sends.end())
          together[peer.sent] = std::max(together[peer.sent], found->second.size());
      }
  }

  /// Numbers the links that cannot carry all of their flows at full speed.
  void shareLinks() {
    std::set<FlowShares> shared;
    for (const FlowShares &uses : links) {
      double most = 0;
      for (const auto &[flow, share] : uses)
        most += share / ranks.flows[flow].stretch * static_cast<double>(together[flow]);
      if (most > 1 + 1e-9)
        shared.insert(uses);
    }
    for (const FlowShares &uses : shared) {
      for (const auto &[flow, share] : uses)
        ranks.flows[flow].uses.push_back({ranks.links, share});
      ++ranks.links;
    }
  }

  const plan::Plan &plan;
  Topology &topology;
  RankClasses &ranks;
  const bool gpu;
  const std::vector<ProgramStreams> streams; ///< by program
  std::vector<size_t> together; ///< by flow: how many transfers of two equal ranks may move at the same time
  std::map<std::pair<uint32_t, uint32_t>, std::set<uint32_t>> meetingStreams; ///< by meeting and representative
  std::set<FlowShares> links;
};

} // namespace

void addFlows(const plan::Plan &programs, const plan::Plan &plan, Topology &topology,
              const std::vector<std::vector<uint32_t>> &nodes, RankClasses &ranks) {
  FlowWriter(programs, plan, topology, ranks).write(nodes);
}

std::map<uint64_t, FlowShares> linksOfNode(const plan::Plan &plan, Topology &topology, const RankClasses &ranks,
                                           std::span<const uint32_t> node) {
  const std::vector<ProgramStreams> streams = allStreams(plan);
  return NodeLinks(plan, topology, ranks, streams, backendOf(plan) == Target::Kind::Cuda)(node);
}

} // namespace cleave::partitioner
