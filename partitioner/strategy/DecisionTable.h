// The decisions about the whole step, a row for each.
#pragma once
#include "partitioner/strategy/Strategy.h"

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace cleave::partitioner {

struct TomlPlace;

/// What there is to know of a decision, except how plans execute it and what it costs (docs/adding.md).
struct DecisionRow {
  std::string_view word;        ///< in files, plans and pages
  std::optional<AxisRole> axis; ///< it has no meaning unless the mesh splits this axis
  /// Whether it is asked for.
  bool (*given)(const Strategy &asked);
  /// Takes it from a strategy that gives it, and opens what then has no meaning.
  void (*take)(Strategy &all, const Strategy &over);
  void (*open)(Strategy &all);
  /// Takes what is asked for.
  void (*decide)(Decisions &all, const Strategy &asked);
  /// For people.
  std::string (*value)(const Decisions &all);
  /// Takes it from other decisions.
  void (*copy)(Decisions &all, const Decisions &from);
  /// Reads its entry of a strategy file; null: it stands in that of another decision.
  void (*read)(Strategy &asked, const TomlPlace &entry);
  /// For the message that refuses it on a mesh that does not split the axis, "--zero 1", or "zero = 1" of a file; null:
  /// such a mesh may have it.
  std::string (*refused)(const Decisions &all, bool byOption) = nullptr;

  /// Whether the mesh splits the axis.
  bool isFree(const Mesh &mesh) const { return !axis || mesh.size(*axis) > 1; }
};

/// In the order of lists for people.
std::span<const DecisionRow> decisionTable();
/// Null if no decision has this name.
const DecisionRow *decisionNamed(std::string_view word);

/// The recomputation that the rules ask for in every layer; the last one wins.
std::optional<Recomputation> ofEveryLayer(std::span<const RecomputeRule> rules);

/// Those of the decisions that the mesh cannot have.
std::vector<const DecisionRow *> excludedBy(const Mesh &mesh, const Decisions &all);

} // namespace cleave::partitioner
