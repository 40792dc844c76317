// Where the ranks of a plan lie, as far as their costs depend on it. On a cluster with devices of one kind all ranks
// have the same costs, those of the position that lies on the most nodes; otherwise each position of the pipeline has
// those of its devices. Messages between positions depend on their nodes in any case.
#pragma once
#include "partitioner/cluster/Cluster.h"
#include "partitioner/search/Questions.h"
#include "partitioner/simulate/Topology.h"

#include <map>
#include <optional>
#include <vector>

namespace cleave::partitioner {

/// Whether the collectives over axis dp use other links than those over axis tp, so that both gain from running at the
/// same time: the groups of tp are inside of nodes, those of dp are not.
bool replicasApart(const Mesh &mesh, const Cluster &cluster);

class Sites : public RankPlaces {
public:
  /// The first `devices` devices of the cluster, which must outlive this object.
  Sites(const Cluster &cluster, int64_t devices);

  bool oneKind() const { return kinds == 1; }
  /// Whether all plans have the same site: of devices of one kind, on one node.
  bool oneSite() const { return oneKind() && places.back().node == places.front().node; }
  /// The devices of a site, in the order of a plan's ranks there, of which those along axis tp are next to each other;
  /// empty, for site 0 of devices of one kind: the first devices of the cluster.
  const std::vector<uint32_t> &devices(Site site) const { return all[site]; }
  const std::vector<Site> &positions(const PlanGroup &group) override;
  const std::vector<std::vector<Site>> &parts(const PlanGroup &group, int64_t tensor) override;
  /// See above, of the ranks of a split at a site.
  bool replicasApart(const SplitChoice &split, Site site) const;
  /// The part of the network's rate that a site has, because other positions of the pipeline share its nodes' links
  /// and work at the same time.
  double networkShare(Site site) const { return networkShares[site]; }
  /// The site with the same devices of a pipeline that is always full.
  Site whenFull(Site site) const;
  /// On devices of one kind those that put ranks on other nodes. On several kinds those that put kinds into different
  /// positions of the pipeline; in these axis tp is faster than dp.
  std::vector<Mesh> orders(const Mesh &mesh) const override;
  double sendSeconds(const PlanGroup &group, int64_t from, int64_t to, double bytes) override;
  double sumSeconds(const PlanGroup &group, double bytes, bool scatters) override;
  double tiedSeconds(const PlanGroup &group, const std::vector<int64_t> &positions, double bytes) override;
  double metricsSeconds() override;
  const SharedLinks &sharedLinks(const PlanGroup &group) override { return of(group).links; }

private:
  /// Where messages from one position to another go.
  struct Boundary {
    MessageLink link;      ///< of the slowest message, while all others are sent
    double slicesFrom = 0; ///< bytes from which messages are sent in slices; 0: none is
    GroupLinks slices;     ///< along axis tp, of the receivers
  };
  struct Placed {
    std::vector<Site> positions; ///< when the pipeline is full
    /// Of the ranks that lie on the most nodes: how many positions use a node's link, and the part of its rate that
    /// one of them reaches.
    double sharing = 1, reach = 1;
    std::map<int64_t, std::vector<Site>> filled; ///< the same as `positions`, by the number of microbatches
    std::vector<std::vector<Site>> groups, single;
    std::map<std::pair<int64_t, int64_t>, Boundary> boundaries; ///< of neighbours
    SharedLinks links;
    std::optional<SumGroup> sums;
    std::map<std::vector<int64_t>, SumGroup> tied; ///< by positions
  };
  Placed &of(const PlanGroup &group);
  /// Ranks that sum together, while groups of the other ranks of `position` do so, too.
  SumGroup sumGroup(const std::vector<uint32_t> &members, const std::vector<uint32_t> &position);
  using Positions = std::vector<std::vector<uint32_t>>; ///< the devices of each, see devices()
  void setSpread(Placed &placed, const Mesh &mesh, const Positions &devices);
  static Positions devicesOf(const Mesh &mesh);
  /// `slicesFrom`: see Boundary.
  Boundary boundary(const Mesh &mesh, const std::vector<uint32_t> &senders, const std::vector<uint32_t> &receivers,
                    double slicesFrom);
  void addLinks(Placed &placed, const Mesh &mesh, const Positions &devices);
  std::vector<Site> partsAt(const Mesh &mesh, const std::vector<uint32_t> &devices, int64_t tensor);
  Site numberOf(std::vector<uint32_t> devices, double networkShare = 1);
  /// The node of each rank, by position.
  std::vector<std::vector<int64_t>> nodesOf(const Mesh &mesh) const;

  const Cluster &cluster;
  const std::vector<Cluster::Place> places;
  Topology topology;
  size_t kinds = 0;
  std::optional<double> metrics; ///< seconds, see metricsSeconds
  std::vector<std::vector<uint32_t>> all;
  std::vector<double> networkShares;                        ///< by site
  std::map<Site, Site> full;                                ///< see whenFull; those that differ
  std::map<std::vector<uint64_t>, Site> numbers;            ///< by what matters of the devices
  std::map<std::pair<AxisSizes, AxisOrder>, Placed> placed; ///< by mesh
};

} // namespace cleave::partitioner
