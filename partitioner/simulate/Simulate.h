// Simulates one training iteration of a plan on a cluster, before it runs.
//
// Every rank executes its list of actions; a step begins when the steps before it in its stream and the steps for which
// it waits have ended. A collective begins when all its members have reached it. A message is sent when its sender and
// its receiver have reached it (on GPUs both wait; on hosts the sender continues). Costs of steps are those of
// partitioner/cost, computed once per segment. One rank of each class is simulated (Classes.h). Transfers that use a
// link at the same time share its rate (Traffic.h).
#pragma once
#include "partitioner/cluster/Cluster.h"
#include "partitioner/cost/Work.h"
#include "partitioner/simulate/Classes.h"
#include "partitioner/pipeline/Traffic.h"

#include <array>
#include <vector>

namespace cleave::partitioner {

/// A step that a rank executed: an action of the training list, and a step of the action's segment.
struct StepSpan {
  uint32_t action, step;
  uint32_t stream;   ///< as the plan numbers them
  double begin, end; ///< seconds
};

/// The time of a class of ranks by use, in seconds. busy + communication + idle is the iteration.
struct ClassTimes {
  double busy = 0;          ///< computing
  double communication = 0; ///< communicating while nothing is computed
  double hidden = 0;        ///< communicating while something is computed
  double idle = 0;
  double span = 0, work = 0; ///< of forward and backward passes: time from first to last step; time computing or
                             ///< reducing in between
  std::array<double, workClassCount> byWork{}; ///< parts of `busy`
  double collectives = 0, messages = 0;        ///< durations without waiting for other ranks
  double flops = 0;                            ///< operations of one rank
};

struct Simulation {
  double stepSeconds = 0;
  /// (longest span - most work) / longest span (Qi et al., Zero Bubble Pipeline Parallelism, 2024). With unequal stages
  /// this is the share of time in which the busiest stage waits; the first and last stage often have less to do.
  double bubbleFraction = 0;
  double flops = 0; ///< of all ranks
  RankClasses ranks;
  std::vector<ClassTimes> times;               ///< by class
  std::vector<std::vector<StepSpan>> timeline; ///< by class, if asked for
  std::vector<TransferPiece> traffic;          ///< the speeds of all transfers, if asked for
};

struct SimulateOptions {
  bool timeline = false;
  bool traffic = false;
  /// The device of each rank; empty: rank r on device r.
  std::vector<uint32_t> devices = {};
  const plan::Plan *table = nullptr; ///< see classifyRanks
};

/// `plan` has passed the checks of its structure (runtime/plan/check/Check.h). Throws userError if it does not fit the
/// cluster, environmentError if ranks would wait forever for messages or collectives.
Simulation simulate(const plan::Plan &plan, const Cluster &cluster, const SimulateOptions &options = {});

} // namespace cleave::partitioner
