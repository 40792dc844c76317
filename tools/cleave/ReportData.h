// What `cleave report` shows, as JSON for its page (report/page.js).
#pragma once
#include "partitioner/simulate/Simulate.h"
#include "runtime/plan/summary/PlanSummary.h"
#include "tools/cleave/WhatIf.h"

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace cleave::tool {

struct ReportInput {
  const plan::Plan &plan;
  const PlanSummary &summary;
  const partitioner::Cluster &cluster;
  const partitioner::Simulation &simulation; ///< with timeline and traffic
  std::vector<OtherPlan> alternatives = {};  ///< empty: the page has no such section
};

/// Folded, so that its size depends on the distinct ranks and layers: one timeline per class of ranks, in which each
/// action is one event per stream if there are more than `mostEvents` steps.
nlohmann::ordered_json reportData(const ReportInput &input, size_t mostEvents = 24000);

/// The timelines (ReportTimeline.cpp) and the modules (ReportModules.cpp) in it.
nlohmann::ordered_json reportTimeline(const ReportInput &input, size_t mostEvents);
nlohmann::ordered_json reportModules(const ReportInput &input);

/// The whole page. Names may hold markup: the data is embedded so that it can neither end its element nor run.
std::string reportPage(const nlohmann::ordered_json &data);

/// The stage of a segment's work (index of Plan.stages).
uint32_t stageOfSegment(const plan::Program &program, const plan::Segment &segment);

} // namespace cleave::tool
