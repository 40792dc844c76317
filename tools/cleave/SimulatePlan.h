// cleave simulate FILE.plan: a plan on a cluster.
#pragma once
#include "partitioner/cluster/Cluster.h"
#include "partitioner/simulate/ReadTrace.h"
#include "runtime/plan/PlanFile.h"

#include <string>

namespace cleave::tool {

struct SimulatePlanOptions {
  std::string cluster; ///< file; empty: the cluster that the plan was made for
  std::string trace;   ///< file to write; empty: none
  std::string against; ///< trace of a run of the plan; empty: none
  bool json = false;
};

/// The cluster of the file `named`, or the plan's own if `named` is empty. Throws userError that names --cluster if
/// there is none. `file`: the plan's, for messages.
partitioner::Cluster clusterOf(const plan::Plan &plan, const std::string &file, const std::string &named);

/// Prints the prediction, as one JSON object or as a page, and writes the trace. Throws an Error; then nothing is
/// printed or written.
void simulatePlan(const std::string &file, const SimulatePlanOptions &options);

/// Reads the trace of a run of the plan. Throws userError as readTrace does.
partitioner::MeasuredRun loadTrace(const std::string &trace, const PlanFile &plan);

} // namespace cleave::tool
