// Makes plans of the whole model for a search. No MLIR in this header.
#pragma once
#include "partitioner/search/FindPlan.h"
#include "passes/search/SplitTrials.h"

#include <set>

namespace cleave::passes {

class Finalists : public partitioner::PlanTrials {
public:
  Finalists(const SearchJob &job, const partitioner::SearchInput &input, SplitTrials &trials)
      : job(job), input(input), trials(trials) {}

  partitioner::Decisions strategyOf(const partitioner::Candidate &candidate);
  std::vector<partitioner::TriedPlan> tried(std::span<const partitioner::Candidate> candidates,
                                            const Stops &stops) override;

private:
  /// What a plan does if it does not fit.
  struct Safer {
    std::vector<partitioner::RecomputeRule> rules; ///< or empty
    std::set<int64_t> at;                          ///< positions of the pipeline at which that recomputes more
  };
  Safer saferOf(const partitioner::Candidate &candidate) const;
  void compileAndSimulate(partitioner::TriedPlan &plan, Safer safer, std::optional<GraphModule> model,
                          const Stops &stops) const;
  std::string keyOf(const partitioner::Decisions &strategy) const;
  std::shared_ptr<const PlanFile> known(const partitioner::Decisions &strategy) const;
  std::string noneSuits(const std::string &why) const;

  const SearchJob &job;
  const partitioner::SearchInput &input;
  SplitTrials &trials;
};

} // namespace cleave::passes
