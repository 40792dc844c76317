// Words of a failed search.
#include "passes/search/NoneFits.h"

#include "ir/graph/Graph.h"
#include "partitioner/simulate/Memory.h"
#include "partitioner/strategy/Pattern.h"

#include <algorithm>
#include <fmt/format.h>

namespace cleave::passes {

std::string noneFits(const partitioner::SearchOutcome &outcome, const std::string &devices, const std::string &problem,
                     const std::string &pinned) {
  if (outcome.stoppedEarly)
    return fmt::format("it was stopped before it found a strategy for {}; give it more time (--search-seconds), or a "
                       "mesh (--mesh)",
                       devices);
  if (!problem.empty())
    return problem;
  if (outcome.counts.prunedByMemory == 0)
    return fmt::format("the model cannot be split over {} as requested ({} plans of {} refused)", devices,
                       outcome.counts.refused, outcome.counts.total);
  const auto [needed, capacity] = partitioner::gibibytes(outcome.leastBytes, outcome.capacity);
  return fmt::format(
      "no strategy fits the memory of {}: the one that needs least takes {} on a rank, its device has {} "
      "for it{}; more devices, a smaller batch or lower precision would help",
      devices, needed, capacity, pinned);
}

std::string largestPinned(mlir::func::FuncOp forward, const partitioner::Decisions &pins) {
  std::string largest;
  double most = 0;
  for (const mlir::BlockArgument argument : forward.getArguments()) {
    if (ir::argumentKind(argument) != ir::SlotKind::Parameter)
      continue;
    const std::string name = ir::argumentText(argument, ir::attr::name).str();
    const double bytes = 4 * static_cast<double>(ir::tensorType(argument).getNumElements());
    const auto pinsIt = [&](const partitioner::ShardRule &rule) { return partitioner::matches(rule.pattern, name); };
    if (bytes > most && std::ranges::any_of(pins.shard, pinsIt))
      largest = name, most = bytes;
  }
  return largest.empty()
             ? ""
             : fmt::format("; the split of {}, {}, is pinned", largest, partitioner::gibibytes(most, 0).first);
}

} // namespace cleave::passes
