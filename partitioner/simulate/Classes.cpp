// Refines classes of ranks and of nodes until they are stable.
#include "partitioner/simulate/Classes.h"

#include "partitioner/simulate/Flows.h"
#include "runtime/plan/check/Defects.h"
#include "runtime/plan/plan_generated.h"

#include <algorithm>
#include <map>

namespace cleave::partitioner {

using check::length;

namespace {

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
  Refinement(const plan::Plan &programs, const plan::Plan &plan, const Cluster &cluster,
             std::span<const uint32_t> devices)
      : programs(programs), plan(plan), topology(plan, cluster, devices) {
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
        peerLinks[r].push_back(topology.message(r, plan.ranks()->Get(r)->peers()->Get(e)));
        peerLink[r].push_back(linkNumbers.of(peerLinks[r].back()));
      }
    for (uint32_t r = 0; r < ranks; ++r) {
      nodes.resize(std::max(nodes.size(), static_cast<size_t>(topology.place(r).node + 1)));
      nodes[static_cast<size_t>(topology.place(r).node)].push_back(r);
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

  /// Per group: a number that is equal for equal members and links.
  std::vector<uint32_t> meetingNumbers() const {
    Numbers<std::pair<Signature, uint32_t>> meetings;
    std::vector<uint32_t> numbers;
    for (uint32_t g = 0; g < members.size(); ++g)
      numbers.push_back(meetings.of({meetingOf(g), groupLink[g]}));
    return numbers;
  }

  /// The ranks of a node, and the groups that meet on it with their numbers of members. Where it matters which device a
  /// rank runs on, also which ranks are in a group or exchange messages.
  Signature signatureOfNode(const std::vector<uint32_t> &node, const std::vector<uint32_t> &meeting) const {
    const bool ordered = topology.ordered(topology.place(node.front()).group);
    Signature signature{topology.place(node.front()).group, node.size()}, meets;
    std::map<uint32_t, uint32_t> groups; // members on this node
    Numbers<uint32_t> known;
    for (const uint32_t r : node) {
      const plan::Rank &rank = *plan.ranks()->Get(r);
      signature.push_back(colours[r]);
      for (uint32_t e = 0; e < length(rank.groups()); ++e) {
        groups[rank.groups()->Get(e)] += firstEntry(r, e) == e;
        if (ordered)
          signature.push_back(known.of(rank.groups()->Get(e)));
      }
      for (uint32_t e = 0; ordered && e < length(rank.peers()); ++e) {
        const Cluster::Place &peer = topology.place(rank.peers()->Get(e));
        signature.push_back(peer.node == topology.place(r).node ? peer.device + 1 : 0);
      }
    }
    if (!ordered)
      std::sort(signature.begin() + 2, signature.end());
    for (const auto &[group, count] : groups)
      meets.push_back(uint64_t{meeting[group]} << 32 | count);
    std::sort(meets.begin(), meets.end());
    signature.insert(signature.end(), meets.begin(), meets.end());
    return signature;
  }

  /// Per node: a number that is equal for equal signatures.
  std::vector<uint32_t> nodeNumbers(const std::vector<uint32_t> &meeting) const {
    Numbers<Signature> numbers;
    std::vector<uint32_t> all;
    for (const std::vector<uint32_t> &node : nodes)
      all.push_back(numbers.of(signatureOfNode(node, meeting)));
    return all;
  }

  size_t refine() {
    const std::vector<uint32_t> meeting = meetingNumbers(), node = nodeNumbers(meeting);
    Numbers<Signature> classes;
    std::vector<uint32_t> next;
    for (uint32_t r = 0; r < colours.size(); ++r) {
      const plan::Rank &rank = *plan.ranks()->Get(r);
      const Cluster::Place &place = topology.place(r);
      Signature signature{colours[r], rank.program(), place.kind, node[static_cast<size_t>(place.node)]};
      for (uint32_t e = 0; e < length(rank.groups()); ++e)
        signature.push_back(meeting[rank.groups()->Get(e)]);
      for (uint32_t e = 0; e < length(rank.peers()); ++e)
        signature.push_back(uint64_t{colours[rank.peers()->Get(e)]} << 32 | peerLink[r][e]);
      next.push_back(classes.of(signature));
    }
    colours = std::move(next);
    return classes.size();
  }

  RankClasses result() {
    RankClasses made;
    made.classOf = colours;
    const std::vector<uint32_t> meeting = meetingNumbers(), nodeNumber = nodeNumbers(meeting);
    for (uint32_t g = 0; g < members.size(); ++g)
      if (meeting[g] == made.meetings.size())
        made.meetings.push_back(distinct(meetingOf(g)));
    for (uint32_t r = 0; r < colours.size(); ++r)
      if (colours[r] < made.classes.size())
        ++made.classes[colours[r]].ranks;
      else
        made.classes.push_back(alikeTo(r, meeting));
    std::vector<std::vector<uint32_t>> distinctNodes;
    for (size_t n = 0; n < nodes.size(); ++n)
      if (nodeNumber[n] == distinctNodes.size())
        distinctNodes.push_back(nodes[n]);
    addFlows(programs, plan, topology, distinctNodes, made);
    return made;
  }

  AlikeRanks alikeTo(uint32_t r, const std::vector<uint32_t> &meeting) const {
    const plan::Rank &rank = *plan.ranks()->Get(r);
    AlikeRanks one{.representative = r,
                   .ranks = 1,
                   .program = rank.program(),
                   .kind = topology.place(r).kind,
                   .groups = {},
                   .peers = {}};
    for (uint32_t e = 0; e < length(rank.groups()); ++e) {
      const uint32_t group = rank.groups()->Get(e);
      one.groups.push_back({meeting[group], firstEntry(r, e), groupLinks[group]});
    }
    for (uint32_t e = 0; e < length(rank.peers()); ++e)
      one.peers.push_back({colours[rank.peers()->Get(e)], peerLinks[r][e], 0, 0});
    return one;
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

  const plan::Plan &programs, &plan; ///< plan: with ranks and groups
  Topology topology;
  std::vector<std::vector<std::pair<uint32_t, uint32_t>>> members; ///< per group: rank, entry of its table
  std::vector<GroupLinks> groupLinks;
  std::vector<uint32_t> groupLink; ///< per group: a number that is equal for equal links
  std::vector<std::vector<MessageLink>> peerLinks;
  std::vector<std::vector<uint32_t>> peerLink;
  std::vector<std::vector<uint32_t>> nodes; ///< the ranks of each
  std::vector<uint32_t> colours;
};

} // namespace

RankClasses classifyRanks(const plan::Plan &plan, const Cluster &cluster, std::span<const uint32_t> devices,
                          const plan::Plan *table) {
  return Refinement(plan, table ? *table : plan, cluster, devices).run();
}

} // namespace cleave::partitioner
