// The decisions about the whole step, a row for each.
#pragma once
#include "partitioner/strategy/Decisions.h"

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace cleave::partitioner {

struct TomlPlace;

/// How a search tries a decision that changes the steps of ranks: its values as numbers from 0.
struct TriedValues {
  int64_t count;
  int64_t (*of)(const Decisions &all);
  void (*decide)(Decisions &all, int64_t value);
  int64_t (*chosen)(const SplitChoice &split);
  void (*choose)(SplitChoice &split, int64_t value);
};

/// What there is to know of a decision, except how plans execute it and what it costs (docs/adding.md).
struct DecisionRow {
  std::string_view word;        ///< in files, plans and pages
  std::optional<AxisRole> axis; ///< it has no meaning unless the mesh splits this axis
  /// Whether it is asked for, or a part of it.
  bool (*given)(const Strategy &asked);
  /// Whether a search has something to decide; null: it is never searched.
  bool (*open)(const Strategy &asked);
  /// Takes it from a strategy that gives it, and drops what then has no meaning.
  void (*take)(Strategy &all, const Strategy &over);
  void (*drop)(Strategy &all);
  /// Takes what is asked for.
  void (*decide)(Decisions &all, const Strategy &asked);
  /// For people.
  std::string (*value)(const Decisions &all);
  /// Takes it from other decisions.
  void (*copy)(Decisions &all, const Decisions &from);
  /// Reads its entry of a strategy file; null: it stands in that of another decision.
  void (*read)(Strategy &asked, const TomlPlace &entry);
  /// Its line in a strategy file, "1" of `zero = 1`; empty: none. Null: its entry has another form (Decisions::toToml).
  std::string (*line)(const Decisions &all) = nullptr;
  /// Null: a search does not try values one by one.
  const TriedValues *tried = nullptr;
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

/// What becomes of a decision.
enum class RowState : uint8_t {
  Pinned,              ///< it is as asked for
  Default,             ///< it has its default
  DefaultUnlessMemory, ///< it has its default if the plan then fits the memory of its devices, or what does fit
  Open                 ///< a search finds it
};

/// Of a decision that is asked for, or left to a search if there is one.
RowState stateOf(const DecisionRow &row, const Strategy &asked, bool searched);

/// An option that asks for a decision, or for a part of it.
struct DecisionOption {
  std::string_view option; ///< "--zero"
  bool flag;               ///< it has no value
  void (*ask)(Strategy &asked, const std::string &value);
};
std::span<const DecisionOption> decisionOptions();

/// The decisions of a strategy as a search tries them.
SplitChoice splitOf(const Decisions &all, int64_t batch);
/// Takes the decisions that a search tried.
void decide(Decisions &all, const SplitChoice &split);

/// The recomputation that the rules ask for in every layer; the last one wins.
std::optional<Recomputation> ofEveryLayer(std::span<const RecomputeRule> rules);

/// Those of the decisions that the mesh cannot have.
std::vector<const DecisionRow *> excludedBy(const Mesh &mesh, const Decisions &all);

} // namespace cleave::partitioner
