// A program's list of training actions, prepared for simulation: the data of each step, and the order of steps by
// stream.
#pragma once
#include "partitioner/cost/StepCost.h"
#include "partitioner/simulate/Classes.h"
#include "runtime/plan/PlanTypes.h"

#include <cstdint>
#include <span>
#include <vector>

namespace cleave::partitioner {

/// A step of a segment, the same for every class that runs the program.
struct ScriptStep {
  enum Kind : uint8_t { Compute, Collective, Send, Recv } kind = Compute;
  uint32_t stream = 0; ///< index of Script::streams
  uint32_t entry = 0;  ///< index in the rank's table of groups or peers
  uint32_t tag = 0;
  plan::CollectiveKind collective{};
  double bytes = 0; ///< of a message or a collective
  StepWork work;
};

struct ScriptSegment {
  bool pipeline = false; ///< whether it is a forward or backward pass
  std::vector<ScriptStep> steps;
  std::vector<std::vector<uint32_t>> byStream; ///< steps, in order
  uint32_t firstCost = 0;                      ///< index of the first step among all segments' steps
  double flops = 0;
};

struct ScriptAction {
  uint32_t segment;
  int32_t microbatch;
  uint32_t firstItem;       ///< number of the action's first step among all actions' steps
  uint32_t waits, waitsEnd; ///< range of Script::waits, sorted by step
  uint32_t sends, sendsEnd; ///< range of Script::sends: messages to wait for
};

struct Script {
  struct Wait {
    uint32_t step, item;
  };
  struct SendId {
    uint32_t tag;
    int32_t microbatch;
  };
  std::vector<uint32_t> streams; ///< their numbers in the plan; the compute stream is the first
  std::vector<ScriptSegment> segments;
  std::vector<ScriptAction> actions;
  std::vector<Wait> waits;
  std::vector<SendId> sends;
  uint32_t items = 0, costs = 0;
};

/// `gpu`: steps run in streams. Otherwise they run in the order of the list, and actions wait for sends.
Script makeScript(const plan::Plan &plan, const plan::Program &program, bool gpu);

/// The seconds of each step of the script's segments, for a class of ranks, if no transfers of other flows use the same
/// links.
std::vector<TransferSeconds> scriptCosts(const Script &script, const RankClasses &ranks, const AlikeRanks &rankClass,
                                         const CostDevice &device);

} // namespace cleave::partitioner
