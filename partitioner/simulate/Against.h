// Compares a real run with its prediction, to show wrong constants.
#pragma once
#include "partitioner/simulate/ReadTrace.h"
#include "partitioner/simulate/Simulate.h"

#include <string>
#include <vector>

namespace cleave::partitioner {

/// Predicted and measured seconds of an iteration.
struct Compared {
  double predicted = 0, measured = 0;
  double miss() const { return measured - predicted; }
};

/// The times of a kind of step: a class of work ("product"), a collective and its axis ("all-reduce dp"), or "message".
/// Without the time that a rank waits for others.
struct ComparedKind {
  std::string kind;
  Compared time;
};
struct ComparedRank {
  uint32_t rank = 0;
  int64_t stage = 0;                  ///< of its program
  Compared busy, communication, idle; ///< defined as in ClassTimes
  std::vector<ComparedKind> kinds;
};
struct ComparedStage {
  int64_t stage = 0; ///< index of Plan.stages; -1: steps that belong to none
  uint32_t ranks = 0;
  std::vector<ComparedKind> kinds; ///< mean over these ranks
};
/// The times of steps of one kind, path and segment.
struct ComparedStep {
  std::string kind, segment, path;
  Compared time; ///< mean over the ranks that have such a step
};

/// All lists except `ranks` and `stages` are sorted by miss, the largest first.
struct Comparison {
  uint32_t iterations = 0;
  Compared step;      ///< from the first step of any rank to the last; measured: the median
  double between = 0; ///< seconds from an iteration's last step to the first step of the next; measured, the median
  std::vector<ComparedKind> kinds; ///< mean over all ranks
  std::vector<ComparedStage> stages;
  std::vector<ComparedRank> ranks;
  std::vector<ComparedStep> steps;
};

/// A measured collective is timed from the arrival of its last member, a message from the arrival of both ends. The
/// time of a step is the median over iterations. `simulation`: of `plan` on `cluster`; `run`: the result of readTrace
/// for `plan`.
Comparison compareWithRun(const plan::Plan &plan, const Cluster &cluster, const Simulation &simulation,
                          const MeasuredRun &run);

} // namespace cleave::partitioner
