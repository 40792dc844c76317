// A loss that is NaN or infinite ends training, and the last good checkpoint stays: one whose parameters are not finite
// is never written. --keep-going goes on instead; --find-nan names the step of the plan that made the first such value.
//
// A step whose gradients overflowed and that loss scaling skipped changed nothing, so it is no reason to end, unless so
// many follow each other that nothing is learnt any more. A batch in which nothing counts has no loss.
#pragma once
#include "runtime/checkpoint/Checkpoint.h"
#include "runtime/session/RankJob.h"
#include "runtime/session/Session.h"

#include <string>

namespace cleave {

class NonFiniteLoss {
public:
  /// Made by all ranks, at set-up.
  NonFiniteLoss(std::shared_ptr<const PlanFile> plan, unsigned rank, World &world, const TrainOptions &options);

  /// Rank 0 saw the loss of a step. What to warn of; empty: nothing. Then wrong() says whether training must end.
  std::string see(int64_t step, const LossSums &sums);
  /// Why training must end; empty: it need not.
  const std::string &wrong() const { return reason; }
  /// All ranks, after rank 0 saw losses: ends training with an environmentError where that must be. `saved`: steps in
  /// the last checkpoint; -1: none. (Ranks that search for an origin ask each other here.)
  void agree(const Executor &executor, int64_t saved);
  /// All ranks, before a checkpoint is written: an environmentError where one of its values is not finite. Under
  /// --keep-going what to warn of instead: no such checkpoint is written. Empty: all are finite.
  std::string checkSaved(int64_t step, int64_t saved, const SlotMemory &memory);

private:
  bool finite(unsigned slot, const SlotMemory &memory) const;
  std::string origins(const Executor &executor);
  std::string advice(int64_t saved) const;

  std::shared_ptr<const PlanFile> file;
  const plan::Program &program;
  unsigned rank;
  World &world;
  const TrainOptions &options;
  Communicator *all = nullptr; ///< ranks, where they must agree on something
  std::string reason;
  bool warned = false;
  int64_t skipped = 0; ///< steps in a row
};

} // namespace cleave
