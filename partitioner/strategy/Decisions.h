// Every decision about the split, as data: as it is asked for, as the compiler reads it, and as a search tries it.
#pragma once
#include "ir/dist/Sharding.h"
#include "partitioner/schedule/Schedule.h"

#include <compare>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace cleave::partitioner {

/// The source of a decision: "command line"; "file": a strategy file; "code": a mark in the code; "search"; "memory":
/// the plan would not fit without it; "default".
using Origin = std::string;
/// By decision (DecisionTable.h). What is absent is "default".
using Origins = std::map<std::string, Origin>;

/// A sharding requested for a tensor by module path; `*` in `pattern` matches any characters except dots.
struct ShardRule {
  std::string pattern;                     // "blocks.*.attention.qkv.weight"
  std::map<std::string, std::string> dims; // "0", "0:3x4x16.1" or "heads" -> axes
  Origin origin = "file";
  std::string where = {}; // "mine.toml:7:1", for messages; empty: unknown
};

/// How ops of a module run, where the walk over the ops (partitioner/sharding) would choose otherwise.
struct OpRules {
  std::string pattern;                    // of module paths, as in ShardRule
  std::map<std::string, std::string> ops; // "backward.matmul.2" -> shardings, as decisionText writes them
  Origin origin = "file";
};

/// An entry of `stages`: a layer, or a later use of it, written "embed use 2". A use is a contiguous run of the layer's
/// ops, delimited by other layers' ops or stage marks in the code.
struct LayerUse {
  std::string path;
  int64_t use = 1;
  std::string str() const;
  /// Returns nullopt if the text is neither a module path (which has no spaces) nor a later use.
  static std::optional<LayerUse> parse(const std::string &text);
  auto operator<=>(const LayerUse &) const = default;
};

/// What the backward pass recomputes instead of keeping: nothing; cheap values; everything except values that cross
/// layers.
enum class Recomputation : uint8_t { None, Selective, Full };
/// "none", "selective", "full".
const char *text(Recomputation kind);
std::optional<Recomputation> recomputationNamed(const std::string &word);

/// An entry of `recompute`: a pattern of layer paths as in ShardRule. The last one that matches a layer wins.
struct RecomputeRule {
  /// The pattern for every layer that is a member of a list; for every layer if the model has no such list.
  static constexpr const char *everyLayer = "*";
  std::string pattern;
  Recomputation kind = Recomputation::None;
  Origin origin = "file";
  std::string where = {}; // as in ShardRule
};

/// A sharding that the code asks of a value, by withSharding.
struct Mark {
  std::string path;              ///< of the module; a pattern if equal layers have it
  std::vector<std::string> axes; ///< of each dimension; "": as it is
  std::string where;             ///< the user's line; empty: unknown
  auto operator<=>(const Mark &) const = default;
};

/// A value for every decision. What a strategy leaves open has its default; what stages, orders and shardings it leaves
/// open is found on the way, and stored here. Once a step is annotated, nothing is open.
struct Decisions {
  Mesh mesh;                         // axes dp, tp, pp, always in this order
  std::string schedule = "1f1b";     // see scheduleNames()
  Origin scheduleOrigin = "default"; // "search": it was found for this model, also where "auto" was asked for
  /// The orders of the schedule "auto", as text (orderText), for each coordinate on axis pp. Empty: found by a search
  /// when a step is annotated, which stores the result here, or the name of a published schedule in `schedule`.
  std::vector<std::string> order;
  /// For the schedule "auto": the placement of stages on ranks. Other schedules have a fixed one.
  Placement placement = Placement::Wrapped;
  int64_t microbatches = 1;
  /// Pipeline stages per rank, called virtual stages by Narayanan et al. 2021. 0: chosen and stored here when stages
  /// are cut.
  int64_t chunks = 1;
  /// The layers and later uses (see LayerUse) of each stage, in order. Empty: cut by cost, which is estimated FLOPs
  /// plus a charge per element moved (Layers.h). A stage's list is empty if it has only ops outside any module.
  std::vector<std::vector<std::string>> stages;
  std::string stagesWhere = {}; // as in ShardRule
  std::vector<ShardRule> shard;
  std::vector<OpRules> ops;
  std::vector<RecomputeRule> recompute;
  /// The axis over which activations between products are split along the sequence, "tp"; empty: none (Korthikanti et
  /// al. 2022).
  std::string sequence;
  /// Stage of ZeRO over axis dp (Rajbhandari et al. 2020): 0 none; 1 splits optimizer states; 2 also gradients; 3 also
  /// parameters.
  int64_t zero = 0;
  /// Size in bytes from which a value that is replicated over tp is sent to another stage in slices: each rank sends
  /// one slice, and the receivers gather the slices (Narayanan et al. 2021, section 4.1). 0: never; empty: undecided,
  /// which also means never.
  std::optional<int64_t> scatterGather;
  Origins origins = {};         ///< of all decisions but `recompute`, whose rules have their own
  std::string kind = {};        ///< of the meshes to which the search was restricted: "data", "hybrid", ...; empty: any
  std::vector<Mark> marks = {}; ///< for people: the code repeats them
  Schedule work = {};           ///< the schedule as a value, once nothing is open; empty if the step is not trained

  /// The source of a decision; of recomputation, that of the rule for every layer.
  Origin originOf(const std::string &decision) const;

  /// Whether the schedule is "auto" without an order, which is to be found.
  bool scheduleIsOpen() const { return schedule == searchedSchedule && order.empty(); }
  /// The number of pipeline stages of the model; each rank runs `chunks` of them.
  int64_t stageCount() const { return mesh.size(AxisRole::Pipeline) * chunks; }
  /// The coordinate on axis pp of the ranks that run a stage. Each chunk runs from the first to the last coordinate;
  /// for the schedule zb-v, and an "auto" with the same placement, every second chunk runs back.
  int64_t positionOf(int64_t stage) const;
  /// The stages of a coordinate on axis pp, in the order in which the model runs.
  std::vector<int64_t> stagesAt(int64_t position) const;
  /// For messages: "the mesh has pp = 4 with 2 stages on each of its ranks".
  std::string stagesText() const;

  /// Whether the backward pass is split.
  BackwardPass backward() const;
  /// The schedule. Throws userError if it does not support these sizes, or if `order` is missing or plans cannot
  /// execute it: they need every work once, no circle of waits, and ascending microbatches.
  Schedule plannedSchedule() const;
  /// Stores a schedule: its name and stages per rank, and for "auto" its order and placement.
  void setSchedule(const Schedule &made, const Origin &origin);

  /// Stores `work` if the step is trained. Throws userError as plannedSchedule does, and an internal error if something
  /// is open.
  void complete(bool trains);

  /// What a strategy file asks for, with defaults for everything else.
  static Decisions parse(const std::string &toml, const std::string &fileName);
  /// As a strategy file, which Decisions::parse reads back.
  std::string toToml() const;
};

/// What was asked of the split, by a strategy file, by the command line, or by both. The fields are those of Decisions.
/// What is absent or empty is open.
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

/// What the estimate of a plan is measured for: the part of its decisions that changes the steps of its ranks.
struct SplitChoice {
  int64_t data = 1, tensor = 1; ///< sizes of the axes with these roles
  int64_t rows = 1;             ///< of a microbatch, on all ranks together
  Recomputation recompute = Recomputation::None;
  int64_t zero = 0;
  bool sequence = false;
  bool solved = false; ///< with shardings of single ops and parameters that the solver finds
  auto operator<=>(const SplitChoice &) const = default;
  /// Rows of the rank with the most.
  int64_t rowsOfRank() const { return (rows + data - 1) / data; }
};

/// The beginning of a message about what stands at a place: "mine.toml:7:1: "; empty if the place is.
std::string placed(const std::string &where);

/// The most devices along an axis of a mesh, and the most stages of a rank.
inline constexpr int64_t largestAxis = 1 << 20;

/// The mesh with so many devices by role, all along the first axis of the role.
Mesh meshByRole(int64_t data, int64_t tensor, int64_t pipeline);
/// The mesh dp=1,tp=1,pp=1.
Mesh oneDevice();

/// Sets the size of an axis. Throws userError that begins with `where` for an unknown axis and an impossible size.
void setAxis(Mesh &mesh, const std::string &name, int64_t size, const std::string &where);

/// Reads `dp=2,tp=2,pp=2` (any order, any subset), or `pp=2/tp=2/dp=2`, which also numbers the ranks along the axes in
/// this order, the last one fastest. Throws userError that names the unknown axis or the value.
Mesh parseMesh(const std::string &text);
/// A text that parseMesh reads as an equal mesh.
std::string meshText(const Mesh &mesh);

/// Kinds of meshes.
inline constexpr const char *meshKinds[] = {"data", "model", "pipeline", "hybrid"};

/// A mesh for `devices` devices by kind of parallelism: data, model, pipeline or hybrid (data x model x pipeline, as
/// even as the divisors allow). Throws userError for `auto`, which has no mesh of its own.
Mesh meshFor(int64_t devices, const std::string &kind);

} // namespace cleave::partitioner
