// The decisions of a strategy as a list, and those in which two strategies differ.
#pragma once
#include "partitioner/strategy/Decisions.h"

#include <optional>
#include <string>
#include <vector>

namespace cleave::partitioner {

/// A decision, who made it, and for what.
struct Decision {
  std::string decision; ///< of the table (DecisionTable.h), "sharding" or "mark"
  std::string path;     ///< of layers, a module or a tensor; empty: the whole step
  std::string value;
  Origin origin;
};

/// All decisions about the step; recomputation, shardings and ops by path where they are not the default; marks.
std::vector<Decision> decisionsOf(const Decisions &strategy);

/// What two plans have in common, by module path.
struct ModelNames {
  std::vector<std::string> layers;  ///< in order
  std::vector<std::string> tensors; ///< parameters and buffers
};

/// A decision in which a strategy differs from another one.
struct Difference {
  std::string decision, path; ///< as in Decision
  std::string from, to;
  std::optional<Decisions> alone; ///< the first strategy with this decision of the second
  std::vector<std::string> brings =
      {};                   ///< decisions that have to change with it: with their values of the second, or open
  std::string problem = {}; ///< without `alone`: why it cannot be had alone
};

/// Decisions of `b` that differ from those of `a`. What follows from another decision is left out: shardings that
/// nobody asked for, and slices of messages.
std::vector<Difference> differences(const Decisions &a, const Decisions &b, const ModelNames &model);

} // namespace cleave::partitioner
