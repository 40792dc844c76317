// Ends training if the loss is NaN or infinite, and keeps the last good checkpoint: parameters that are not finite are
// never written. --keep-going continues instead; --find-nan names the step of the plan that produced the first such
// value. Also ends training if a step read invalid indices, whose results mean nothing.
//
// A step skipped by loss scaling because of overflow changed nothing and does not end training, unless so many follow
// each other that training makes no progress. A batch in which no sample counts has no loss.
#pragma once
#include "runtime/checkpoint/Checkpoint.h"
#include "runtime/session/RankJob.h"
#include "runtime/session/Session.h"

#include <string>

namespace cleave {

class NonFiniteLoss {
public:
  /// Collective over all ranks, during set-up.
  NonFiniteLoss(std::shared_ptr<const PlanFile> plan, unsigned rank, RankEndpoint &world, const RunOptions &options);

  /// Call on rank 0 with the sums of a step. Returns a warning, or "". Then wrong() tells whether training must end.
  std::string see(int64_t step, const LossSums &sums);
  /// The reason why training must end; empty if it need not.
  const std::string &wrong() const { return reason; }
  /// Call on all ranks after rank 0 has seen losses: throws environmentError if training must end. `saved`: number of
  /// steps in the last checkpoint; -1: none. (Ranks that search for an origin communicate here.)
  void agree(const Executor &executor, int64_t saved);
  /// Call on rank 0 after the last step: throws environmentError if its loss was not finite, although training went on.
  void end(int64_t saved) const;
  /// Call on all ranks before writing a checkpoint: throws environmentError if one of its values is not finite. With
  /// --keep-going returns a warning instead, and no checkpoint is written. Empty: all values are finite.
  std::string checkSaved(int64_t step, int64_t saved, const SlotMemory &memory);

private:
  std::string origins(const Executor &executor);
  std::string kept(const char *before, int64_t saved) const;
  std::string advice(int64_t saved) const;

  std::shared_ptr<const PlanFile> file;
  const plan::Program &program;
  unsigned rank;
  RankEndpoint &world;
  const RunOptions &options;
  Communicator *all = nullptr;    ///< all ranks, if they must agree on something
  std::string reason, ofLastStep; ///< ofLastStep: what is wrong with its loss; empty: nothing
  bool mistake = false;           ///< the reason is the user's mistake
  bool warned = false;
  int64_t skipped = 0; ///< consecutive steps
};

} // namespace cleave
