// Measures the layers of a model under the splits of a search: compiles a reduced model of one stage with each, and
// simulates it. No MLIR in this header.
#pragma once
#include "partitioner/search/Sites.h"
#include "passes/search/SearchedModel.h"

#include <map>
#include <optional>
#include <utility>

namespace cleave::passes {

class SplitTrials : public partitioner::SplitCosts {
public:
  SplitTrials(const SearchJob &job, const SearchedModel &model, ReducedModels &models, const partitioner::Sites &sites)
      : job(job), model(model), models(models), sites(sites), solvedCosts(*this) {}

  bool takesRows(int64_t rows) override { return models.withRows(rows); }
  const partitioner::SiteCosts *of(const partitioner::SplitChoice &split, partitioner::Site site) override;
  /// One of two ranks along axis dp tells the costs of more, where every rank has as many rows, and the layers do the
  /// same whatever the axis' size.
  partitioner::SplitChoice trialOf(const partitioner::SplitChoice &split) override;
  /// Compiles on several threads.
  void prepare(const std::vector<Wanted> &wanted) override;

  /// The shardings of a split by the solver; null if it found none. They are the same for every stage of ZeRO, which
  /// divides what is stored.
  const partitioner::SolvedLayouts *layouts(partitioner::SplitChoice split);
  /// The costs with these; null if to the solver they are no better than the default ones. Null where it may not
  /// choose: on devices of several kinds, or where shardings are pinned.
  partitioner::SplitCosts *solved();

private:
  using Costs = std::map<std::pair<partitioner::SplitChoice, partitioner::Site>, std::optional<partitioner::SiteCosts>>;

  class Solved : public partitioner::SplitCosts {
  public:
    explicit Solved(SplitTrials &trials) : trials(trials) {}
    bool takesRows(int64_t rows) override { return trials.takesRows(rows); }
    const partitioner::SiteCosts *of(const partitioner::SplitChoice &split, partitioner::Site site) override;
    partitioner::SplitChoice trialOf(const partitioner::SplitChoice &split) override { return split; }
    void prepare(const std::vector<Wanted> & /*wanted*/) override {}

  private:
    SplitTrials &trials;
    Costs measured;
  };

  TrialChoice choiceOf(const partitioner::SplitChoice &split);
  partitioner::SiteCosts costsAt(partitioner::Site site, const PlanFile &trial, int64_t dataRanks = 0) const;
  CompileOptions optionsOf(const partitioner::SplitChoice &split) const;
  std::shared_ptr<const PlanFile> compiled(const TrialChoice &choice, const ReducedModel *reduced,
                                           const partitioner::SolvedLayouts *layouts = nullptr) const;

  const SearchJob &job;
  const SearchedModel &model;
  ReducedModels &models;
  const partitioner::Sites &sites;
  Costs measured;
  std::map<std::pair<int64_t, int64_t>, bool> replicasApart; ///< by the sizes of the axes dp and tp
  std::map<partitioner::SplitChoice, std::optional<partitioner::SolvedLayouts>> layoutsOf;
  Solved solvedCosts;
};

} // namespace cleave::passes
