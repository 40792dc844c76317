// cleave simulate FILE.plan: a plan on a cluster.
#pragma once
#include <string>

namespace cleave::tool {

struct SimulatePlanOptions {
  std::string cluster; ///< file; empty: the cluster that the plan was made for
  std::string trace;   ///< file to write; empty: none
  std::string against; ///< trace of a run of the plan; empty: none
  bool json = false;
};

/// Prints the prediction, as one JSON object or as a page, and writes the trace. Throws an Error; then nothing is
/// printed or written.
void simulatePlan(const std::string &file, const SimulatePlanOptions &options);

} // namespace cleave::tool
