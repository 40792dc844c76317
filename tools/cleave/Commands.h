// The commands of `cleave`. Each takes its arguments (argv[0] is the command) and returns the exit status.
#pragma once
#include "partitioner/strategy/Pattern.h"
#include "runtime/base/JsonText.h"
#include "runtime/plan/summary/PlanSummary.h"

#include <string>
#include <vector>

namespace cleave::tool {

int show(int argc, char **argv);
int verify(int argc, char **argv);
int diff(int argc, char **argv);
int explain(int argc, char **argv);
int simulate(int argc, char **argv);
int report(int argc, char **argv);
int calibrate(int argc, char **argv);
int solve(int argc, char **argv);
int data(int argc, char **argv);
int doctor(int argc, char **argv);
int create(int argc, char **argv);

/// Loads a plan and checks its structure, so that it is safe to display: indices in range, texts without control
/// characters. Does not load its code. Throws an environment error with the defects.
std::shared_ptr<const PlanFile> loadSound(const std::string &file);

/// What the plan contains and, if it was made for a cluster, its predicted step. `file`: for messages. Throws
/// environmentError if the plan's text of its cluster is not valid.
PlanSummary summaryAndPrediction(const std::string &file, const PlanFile &plan);

/// The differences between two plans: {"step_ms": [a, b], "peak_bytes": [a, b], "changes": [{"what", "a", "b"}]}.
nlohmann::ordered_json diffJson(const PlanSummary &a, const PlanSummary &b);
/// The same as a table with these headings.
void printDiff(const PlanSummary &a, const PlanSummary &b, const std::string &first, const std::string &second);

/// The page printed by `cleave show`.
std::string showPage(const PlanSummary &report);
/// The stages and what passes between them as a graph, in the languages of Graphviz and Mermaid.
std::string showDot(const PlanSummary &report);
std::string showMermaid(const PlanSummary &report);
/// A listing of every program's segments with their steps, slots and layouts.
std::string showSteps(const plan::Plan &plan);

/// Milliseconds.
inline double inMs(double seconds) { return seconds * 1e3; }
/// Bytes as MiB with three significant digits: "12.1", "0.937", "1,024".
std::string mebibytes(double bytes);
/// "blocks.0-3, norm" for ["blocks.0", ..., "blocks.3", "norm"].
std::string layerRanges(const std::vector<std::string> &layers);
using partitioner::layerPattern;
/// "0-3, 6" for [0, 1, 2, 3, 6].
std::string numberRanges(const std::vector<uint32_t> &numbers);

} // namespace cleave::tool
