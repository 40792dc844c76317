// Decisions about ops, as a strategy stores them.
#pragma once
#include "partitioner/sharding/OpSharding.h"
#include "partitioner/strategy/Decisions.h"

#include <optional>
#include <string>
#include <vector>

namespace cleave::partitioner {

/// By op of the problem; empty where the walk decides. An empty list: it decides all.
using DecidedOps = std::vector<std::optional<OpDecision>>;

/// "dp, _ ; _, tp -> dp, tp": the shardings of the operands, then those of the results; behind "=>" those under which
/// results are delivered, if that is neither the result nor its sum; behind "backward =>" those that the backward pass
/// reads, if it reads any other.
std::string decisionText(const OpDecision &decision);

/// What the strategy's rules decide; the last rule that matches wins. `strict`: throws userError for a rule that no op
/// can follow; otherwise such rules are left out.
DecidedOps decidedOps(const ShardingProblem &problem, const Decisions &strategy, bool strict);

} // namespace cleave::partitioner
