// Sets a real run beside its prediction, so that a wrong constant shows itself.
#pragma once
#include "partitioner/simulate/ReadTrace.h"
#include "partitioner/simulate/Simulate.h"

#include <string>
#include <vector>

namespace cleave::partitioner {

/// Seconds of an iteration.
struct Compared {
  double predicted = 0, measured = 0;
  double miss() const { return measured - predicted; }
};

/// A kind of step: a class of work ("product"), a collective and its axis ("all-reduce dp"), or "message". Without the
/// time that a rank waits for others.
struct ComparedKind {
  std::string kind;
  Compared time;
};
struct ComparedRank {
  uint32_t rank = 0;
  int64_t stage = 0;                  ///< of its program
  Compared busy, communication, idle; ///< as ClassTimes
  std::vector<ComparedKind> kinds;
};
struct ComparedStage {
  int64_t stage = 0; ///< index of Plan.stages; -1: steps that belong to none
  uint32_t ranks = 0;
  std::vector<ComparedKind> kinds; ///< of a rank, on average
};
/// Steps of one kind, path and segment.
struct ComparedStep {
  std::string kind, segment, path;
  Compared time; ///< of a rank that has it, on average
};

/// All lists but `ranks` and `stages` begin with the largest miss.
struct Comparison {
  uint32_t iterations = 0;
  Compared step;      ///< from its first step of any rank to its last; measured: the median
  double between = 0; ///< seconds from an iteration's last step to the next one's first; measured, the median
  std::vector<ComparedKind> kinds; ///< of a rank, on average
  std::vector<ComparedStage> stages;
  std::vector<ComparedRank> ranks;
  std::vector<ComparedStep> steps;
};

/// A measured collective counts from when its last member has come to it, a message from when both ends have. The time
/// of a step is the median over iterations. `simulation` is that of the plan on the cluster, `run` has been read for
/// it.
Comparison compareWithRun(const plan::Plan &plan, const Cluster &cluster, const Simulation &simulation,
                          const MeasuredRun &run);

} // namespace cleave::partitioner
