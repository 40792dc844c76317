// Reads the JSON text of a problem.
#pragma once
#include "partitioner/solver/Problem.h"

#include <string_view>

namespace cleave::partitioner {

/// Parses
///
///   {"problem": {"name": TEXT,
///                "nodes": {"intervals": [[BEGIN, END], ...], "costs": [[COST, ...], ...], "usages": [[USAGE, ...],
///                ...]}, "edges": {"nodes": [[NODE, ...], ...], "costs": [[COST, ...], ...]}, "usage_limit": USAGE or
///                null}}
///
/// All numbers are whole and fit in 64 bits with sign. `name`, `edges` and `usage_limit` may be absent; without a limit
/// `intervals` and `usages` may be, too. Unknown fields are skipped. Throws a userError that begins with `name` and the
/// path of the fault for text that is not such JSON, and for problems that checkProblem refuses.
AssignmentProblem parseProblem(std::string_view text, const std::string &name);

/// A text that parseProblem reads as an equal problem.
std::string problemText(const AssignmentProblem &problem);

/// {"cost","lower_bound","optimal","assignment","seconds"} on one line.
std::string solutionText(const AssignmentSolution &solution, double seconds);

} // namespace cleave::partitioner
