// What was asked of the split, by a strategy file, by the command line, or by both.
#pragma once
#include "partitioner/strategy/Decisions.h"

namespace cleave::partitioner {

/// The fields are those of Decisions. What is absent or empty is open.
struct Strategy {
  std::optional<Mesh> mesh;
  std::optional<std::string> schedule;
  Origin scheduleOrigin = "default";
  std::vector<std::string> order;
  std::optional<Placement> placement;
  std::optional<int64_t> microbatches, chunks;
  std::vector<std::vector<std::string>> stages;
  std::string stagesWhere;
  std::vector<ShardRule> shard;
  std::vector<OpRules> ops;
  std::vector<RecomputeRule> recompute;
  std::optional<std::string> sequence;
  std::optional<int64_t> zero, scatterGather;
  Origins origins; ///< of what is given, as in Decisions
  /// Of the meshes to choose from: "data", "model", "pipeline": only that axis; "hybrid": several; else any.
  std::string kind;
  std::vector<Mark> marks; ///< as in Decisions

  /// Reads a strategy file. Throws userError that names file, line, rule and value.
  static Strategy parse(const std::string &toml, const std::string &fileName);
  static Strategy load(const std::string &path);
  /// The same; whoever made these decisions, the origin of all of them is the source that asks for them now.
  Strategy askedBy(const Origin &source) const;
  /// Both requests; where both ask for a value, it is that of `over`.
  Strategy with(const Strategy &over) const;
  /// What was asked for when the plan with this strategy was made, changed to `over`: without what was found then or
  /// had its default, and without what a changed decision makes meaningless. A mesh goes only if it was found.
  Strategy askedAgain(const Strategy &over) const;
  /// The strategy, with the default for everything that is open.
  Decisions decided() const;
};

/// Throws userError if the strategy lists another number of stages than its mesh has.
void checkStageCount(const Decisions &strategy);

} // namespace cleave::partitioner
