// Measures the layers of a model under the splits of a search: compiles a reduced model of one stage with each, and
// simulates it. No MLIR in this header.
#pragma once
#include "partitioner/search/Sites.h"
#include "passes/search/SearchedModel.h"

#include <cmath>
#include <map>
#include <optional>
#include <tuple>
#include <utility>

namespace cleave::passes {

class SplitTrials : public partitioner::SplitCosts {
public:
  SplitTrials(const SearchJob &job, const SearchedModel &model, ReducedModels &models, partitioner::Sites &sites)
      : job(job), model(model), models(models), sites(sites) {}

  bool takesRows(int64_t rows) override { return models.withRows(rows); }
  const partitioner::SiteCosts *of(const partitioner::SplitChoice &split, partitioner::Site site) override;
  /// One of two ranks along axis dp tells the costs of more, where every rank has as many rows, and the layers do the
  /// same whatever the axis' size.
  partitioner::SplitChoice trialOf(const partitioner::SplitChoice &split) override;
  void lookBelow(double seconds) override { interest = seconds; }
  /// Compiles on several threads.
  void prepare(const std::vector<Wanted> &wanted) override;

  /// Whether the solver may choose: on devices of one kind, where no shardings are pinned.
  bool solves() const;
  /// The shardings of a split; null if they are not to be solved, or if to the solver none are better
  /// than the default ones, of this split or of one in which the ranks of axis tp split the rows as well. They are the
  /// same for any number of rows, stage of ZeRO and recomputation.
  const partitioner::SolvedLayouts *layouts(const partitioner::SplitChoice &split, partitioner::Site site);

private:
  using Costs = std::map<std::pair<partitioner::SplitChoice, partitioner::Site>, std::optional<partitioner::SiteCosts>>;

  Wanted problemOf(partitioner::SplitChoice split, partitioner::Site site);
  TrialChoice choiceOf(const partitioner::SplitChoice &split, partitioner::Site site);
  std::map<TrialChoice, std::shared_ptr<const PlanFile>> &trialsAt(partitioner::Site site, bool solved);
  partitioner::Cluster clusterWith(double networkShare) const;
  partitioner::SiteCosts costsAt(partitioner::Site site, const PlanFile &trial, int64_t dataRanks) const;
  void setSentShares(const partitioner::SplitChoice &split, partitioner::Site site, partitioner::SiteCosts &costs);
  CompileOptions optionsOf(const partitioner::SplitChoice &split) const;
  std::shared_ptr<const PlanFile> compiled(const TrialChoice &choice, const ReducedModel *reduced,
                                           const partitioner::SolvedLayouts *layouts) const;
  std::optional<partitioner::ShardingProblem> problemWith(const partitioner::SplitChoice &split,
                                                          const ReducedModel &reduced) const;
  /// Of a split at one or more sites, of which the best counts; without what rows alone take.
  partitioner::LayoutsToSolve toSolve(const partitioner::SplitChoice &split,
                                      const std::vector<partitioner::Site> &sites) const;
  /// What the plan takes that splits the rows over both axes.
  using RowsAlone = std::optional<partitioner::LayoutCost>;
  RowsAlone rowsAlone(const partitioner::SplitChoice &split, const std::vector<partitioner::Site> &sites,
                      const ReducedModel *reduced) const;
  bool mayBeOfUse(const partitioner::SplitChoice &split, const std::vector<partitioner::Site> &sites,
                  const RowsAlone &rowsAlone, const ReducedModel *reduced) const;
  std::optional<partitioner::SolvedLayouts> solve(const Wanted &wanted, const RowsAlone &rowsAlone,
                                                  const ReducedModel *reduced) const;
  void solveAll(const std::vector<Wanted> &problems);

  const SearchJob &job;
  const SearchedModel &model;
  ReducedModels &models;
  partitioner::Sites &sites;
  double interest = INFINITY; ///< seconds, see lookBelow
  Costs measured;
  std::map<std::tuple<int64_t, int64_t, partitioner::Site>, bool> replicasApart; ///< by the sizes of the axes dp and tp
  std::map<std::tuple<int64_t, int64_t, partitioner::Site>, int64_t> solvedRows; ///< by the sizes of the axes dp and tp
  std::map<Wanted, std::optional<partitioner::SolvedLayouts>> layoutsOf;         ///< by what the problem depends on
  std::map<partitioner::Site, std::map<TrialChoice, std::shared_ptr<const PlanFile>>> solvedTrials;
  std::map<std::pair<int64_t, int64_t>, std::map<std::string, double>> sentShares; ///< of layers, by dp and tp
};

} // namespace cleave::passes
