// What each decision is called, how it is read, combined and shown, and which axis it needs.
#include "partitioner/strategy/DecisionTable.h"

#include "partitioner/schedule/Named.h"
#include "partitioner/strategy/ReadToml.h"
#include "runtime/base/Error.h"
#include "runtime/base/ParseNumber.h"

#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>

namespace cleave::partitioner {
namespace {

/// A decision that is one value: what is asked for, and what is decided.
template <auto Asked, auto Decided>
constexpr DecisionRow oneValue(std::string_view word, std::string (*value)(const Decisions &),
                               void (*read)(Strategy &, const TomlPlace &)) {
  return {.word = word,
          .axis = {},
          .given = [](const Strategy &asked) { return (asked.*Asked).has_value(); },
          .open = [](const Strategy &asked) { return !(asked.*Asked).has_value(); },
          .take = [](Strategy &all, const Strategy &over) { all.*Asked = over.*Asked; },
          .drop = [](Strategy &all) { (all.*Asked).reset(); },
          .decide =
              [](Decisions &all, const Strategy &asked) {
                if (asked.*Asked)
                  all.*Decided = *(asked.*Asked);
              },
          .value = value,
          .copy = [](Decisions &all, const Decisions &from) { all.*Decided = from.*Decided; },
          .read = read};
}

// ---- mesh ----------------------------------------------------------------------------------------------------------

void readMesh(Strategy &asked, const TomlPlace &entry) {
  const toml::table *axes = entry.node.as_table();
  if (!axes) {
    if (!entry.node.is_string())
      throw userError(
          fmt::format("{}: mesh must be a table like {{ dp = 2, tp = 2 }} or a text like \"dp=2,tp=2\"", entry.at()));
    asked.mesh = parseMesh(stringAt(entry.file, "mesh", entry.node));
    return;
  }
  asked.mesh = oneDevice();
  for (auto &[axis, size] : *axes) {
    auto number = size.value<int64_t>();
    if (!number || !size.is_integer())
      throw userError(
          fmt::format("{}: the size of axis {} must be a whole number", at(entry.file, size), std::string(axis.str())));
    setAxis(*asked.mesh, std::string(axis.str()), *number, at(entry.file, size));
  }
}

// ---- schedule ------------------------------------------------------------------------------------------------------

constexpr int64_t mostMicrobatches = 1 << 24;

/// The entry of the schedule, and of the microbatches.
void readSchedule(Strategy &asked, const TomlPlace &entry) {
  const std::string &file = entry.file;
  const toml::table *table = entry.node.as_table();
  if (!table)
    throw userError(
        fmt::format("{}: schedule must be a table like {{ name = \"1f1b\", microbatches = 4 }}", entry.at()));
  Origin origin = "file";
  for (auto &[key, value] : *table) {
    if (key == "name") {
      const std::string name = stringAt(file, "schedule.name", value);
      const std::vector<std::string> &names = scheduleNames();
      if (std::find(names.begin(), names.end(), name) == names.end())
        throw userError(fmt::format("{}: schedule.name must be one of {}, found \"{}\"", at(file, value),
                                    fmt::join(names, ", "), name));
      asked.schedule = name;
    } else if (key == "microbatches") {
      asked.microbatches = countAt(file, "schedule.microbatches", value, mostMicrobatches);
    } else if (key == "virtual") {
      asked.chunks = countAt(file, "schedule.virtual, the stages of a rank,", value, largestAxis);
    } else if (key == "placement") {
      const std::string word = stringAt(file, "schedule.placement", value);
      if (word != "wrapped" && word != "v")
        throw userError(
            fmt::format("{}: schedule.placement must be \"wrapped\" or \"v\", found \"{}\"", at(file, value), word));
      asked.placement = word == "v" ? Placement::V : Placement::Wrapped;
    } else if (key == "origin") {
      origin = stringAt(file, "schedule.origin", value);
    } else {
      throw userError(fmt::format("{}: schedule has name, microbatches, virtual, placement and origin, not \"{}\"",
                                  at(file, value), std::string(key.str())));
    }
  }
  const std::string schedule = asked.schedule.value_or(Decisions().schedule);
  if (asked.placement.value_or(Placement::Wrapped) != Placement::Wrapped && schedule != searchedSchedule)
    throw userError(fmt::format("{}: schedule.placement is for the schedule \"{}\" alone, the schedule is \"{}\"",
                                entry.at(), searchedSchedule, schedule));
  asked.scheduleOrigin = origin;
}

/// Takes a value that is asked for.
template <class Value, class Asked> void take(Value &value, const std::optional<Asked> &asked) {
  if (asked)
    value = *asked;
}

void takeSchedule(Strategy &all, const Strategy &over) {
  if (over.schedule && *over.schedule != all.schedule.value_or(Decisions().schedule)) { // what belongs to it goes, too
    all.order.clear();
    all.placement.reset();
    all.scheduleOrigin = over.scheduleOrigin;
  }
  take(all.schedule, over.schedule), take(all.placement, over.placement), take(all.chunks, over.chunks);
  if (!over.order.empty())
    all.order = over.order;
}

constexpr DecisionRow schedule = {
    .word = "schedule",
    .axis = AxisRole::Pipeline,
    .given =
        [](const Strategy &asked) { return asked.schedule || asked.chunks || asked.placement || !asked.order.empty(); },
    .open = [](const Strategy &asked) { return !asked.schedule; },
    .take = takeSchedule,
    .drop =
        [](Strategy &all) {
          all.schedule.reset(), all.chunks.reset(), all.placement.reset(), all.order.clear();
          all.scheduleOrigin = Strategy().scheduleOrigin;
        },
    .decide =
        [](Decisions &all, const Strategy &asked) {
          take(all.schedule, asked.schedule), take(all.placement, asked.placement), take(all.chunks, asked.chunks);
          all.scheduleOrigin = asked.scheduleOrigin;
          all.order = asked.order;
        },
    .value =
        [](const Decisions &all) {
          return fmt::format("{}{}{}", all.schedule,
                             all.chunks > 1 ? fmt::format(", {} stages a rank", all.chunks) : "",
                             all.order.empty() ? "" : ", orders of its own");
        },
    .copy =
        [](Decisions &all, const Decisions &from) {
          all.schedule = from.schedule, all.chunks = from.chunks, all.placement = from.placement;
          all.order = from.order;
        },
    .read = readSchedule};

// ---- stages --------------------------------------------------------------------------------------------------------

void readStages(Strategy &asked, const TomlPlace &entry) {
  const toml::array *stages = entry.node.as_array();
  if (!stages)
    throw userError(fmt::format("{}: stages must be an array with an array of module paths per stage", entry.at()));
  asked.stagesWhere = entry.at();
  for (const toml::node &stage : *stages) {
    const toml::array *paths = stage.as_array();
    if (!paths)
      throw userError(fmt::format("{}: a stage must be an array of module paths", at(entry.file, stage)));
    asked.stages.emplace_back();
    for (const toml::node &path : *paths) {
      std::string name = stringAt(entry.file, "a module path", path);
      if (!LayerUse::parse(name))
        throw userError(
            fmt::format("{}: stages: \"{}\" is not a module path; a later use of a layer is written \"embed use 2\"",
                        at(entry.file, path), name));
      for (const std::vector<std::string> &before : asked.stages)
        if (std::find(before.begin(), before.end(), name) != before.end())
          throw userError(fmt::format("{}: stages lists \"{}\" twice", at(entry.file, path), name));
      asked.stages.back().push_back(name);
    }
  }
}

std::string stagesText(const Decisions &all) {
  std::vector<std::string> stages;
  for (const std::vector<std::string> &stage : all.stages)
    stages.push_back(stage.empty()       ? "-"
                     : stage.size() == 1 ? stage[0]
                                         : fmt::format("{} ... {}", stage.front(), stage.back()));
  return fmt::format("{}", fmt::join(stages, " | "));
}

constexpr DecisionRow stages = {
    .word = "stages",
    .axis = AxisRole::Pipeline,
    .given = [](const Strategy &asked) { return !asked.stages.empty(); },
    .open = [](const Strategy &asked) { return asked.stages.empty(); },
    .take = [](Strategy &all, const Strategy &over) { all.stages = over.stages, all.stagesWhere = over.stagesWhere; },
    .drop = [](Strategy &all) { all.stages.clear(), all.stagesWhere.clear(); },
    .decide = [](Decisions &all,
                 const Strategy &asked) { all.stages = asked.stages, all.stagesWhere = asked.stagesWhere; },
    .value = stagesText,
    .copy = [](Decisions &all, const Decisions &from) { all.stages = from.stages; },
    .read = readStages};

// ---- recomputation -------------------------------------------------------------------------------------------------

void readRecompute(Strategy &asked, const TomlPlace &entry) {
  const std::string &file = entry.file;
  for (const auto &[pattern, value] : rulesAt(file, "recompute", entry.node)) {
    const std::string path = patternAt(file, pattern, *value);
    const toml::node *kind = value;
    Origin origin;
    if (const toml::table *table = value->as_table()) {
      const toml::node *source = table->get("origin");
      kind = table->get("kind");
      if (!kind || !source || table->size() != 2)
        throw userError(
            fmt::format("{}: recompute of {} must be a word, or a table with kind and origin", at(file, *value), path));
      origin = stringAt(file, "origin", *source);
    }
    const std::string word = stringAt(file, "recompute of " + path, *kind);
    const std::optional<Recomputation> known = recomputationNamed(word);
    if (!known)
      throw userError(fmt::format("{}: recompute of {} must be none, selective or full, found \"{}\"", at(file, *kind),
                                  path, word));
    asked.recompute.push_back({path, *known, origin, at(file, *kind)});
  }
}

constexpr TriedValues kinds = {
    .count = 3,
    .of = [](const Decisions &all) { return int64_t(ofEveryLayer(all.recompute).value_or(Recomputation::None)); },
    .decide = [](Decisions &all,
                 int64_t value) { all.recompute = {{RecomputeRule::everyLayer, Recomputation(value), "search"}}; },
    .chosen = [](const SplitChoice &split) { return int64_t(split.recompute); },
    .choose = [](SplitChoice &split, int64_t value) { split.recompute = Recomputation(value); }};

constexpr DecisionRow recompute = {
    .word = "recompute",
    .axis = std::nullopt,
    .given = [](const Strategy &asked) { return !asked.recompute.empty(); },
    .open = [](const Strategy &asked) { return !ofEveryLayer(asked.recompute); },
    // Put first: the rules that are there, which are more specific than an option's, win.
    .take =
        [](Strategy &all, const Strategy &over) {
          all.recompute.insert(all.recompute.begin(), over.recompute.begin(), over.recompute.end());
        },
    .drop = [](Strategy &all) { all.recompute.clear(); },
    .decide = [](Decisions &all, const Strategy &asked) { all.recompute = asked.recompute; },
    .value =
        [](const Decisions &all) {
          return std::string(text(ofEveryLayer(all.recompute).value_or(Recomputation::None)));
        },
    .copy = [](Decisions &all, const Decisions &from) { all.recompute = from.recompute; },
    .read = readRecompute,
    .tried = &kinds};

// ---- the others ----------------------------------------------------------------------------------------------------

void readSequence(Strategy &asked, const TomlPlace &entry) {
  asked.sequence = stringAt(entry.file, "sequence", entry.node);
  if (!asked.sequence->empty() && roleOf(*asked.sequence) != AxisRole::Tensor)
    throw userError(fmt::format("{}: sequence must be \"tp\", the axis that splits the sequence, found \"{}\"",
                                entry.at(), *asked.sequence));
}

void readZero(Strategy &asked, const TomlPlace &entry) {
  asked.zero = entry.node.value_exact<int64_t>().value_or(-1);
  if (*asked.zero < 0 || *asked.zero > 3)
    throw userError(fmt::format("{}: zero must be a stage of ZeRO, 0 to 3", entry.at()));
}

void readScatterGather(Strategy &asked, const TomlPlace &entry) {
  asked.scatterGather = entry.node.value_exact<int64_t>().value_or(-1);
  if (*asked.scatterGather < 0)
    throw userError(fmt::format("{}: scatter_gather must be a number of bytes, or 0 for never", entry.at()));
}

constexpr TriedValues splitSequences = {
    .count = 2,
    .of = [](const Decisions &all) { return int64_t(!all.sequence.empty()); },
    .decide = [](Decisions &all, int64_t value) { all.sequence = value ? axisName(AxisRole::Tensor) : ""; },
    .chosen = [](const SplitChoice &split) { return int64_t(split.sequence); },
    .choose = [](SplitChoice &split, int64_t value) { split.sequence = value; }};

constexpr DecisionRow sequence = [] {
  DecisionRow row = oneValue<&Strategy::sequence, &Decisions::sequence>(
      "sequence", [](const Decisions &all) { return all.sequence.empty() ? "none" : all.sequence; }, readSequence);
  row.axis = AxisRole::Tensor;
  row.line = [](const Decisions &all) { return quote(all.sequence); };
  row.tried = &splitSequences;
  row.refused = [](const Decisions &, bool byOption) {
    return std::string(byOption ? "--sequence-parallel" : "sequence");
  };
  return row;
}();

constexpr TriedValues zeroStages = {.count = 4,
                                    .of = [](const Decisions &all) { return all.zero; },
                                    .decide = [](Decisions &all, int64_t value) { all.zero = value; },
                                    .chosen = [](const SplitChoice &split) { return split.zero; },
                                    .choose = [](SplitChoice &split, int64_t value) { split.zero = value; }};

constexpr DecisionRow zero = [] {
  DecisionRow row = oneValue<&Strategy::zero, &Decisions::zero>(
      "zero", [](const Decisions &all) { return std::to_string(all.zero); }, readZero);
  row.axis = AxisRole::Data;
  row.line = row.value;
  row.tried = &zeroStages;
  row.refused = [](const Decisions &all, bool byOption) {
    return fmt::format("{} {}", byOption ? "--zero" : "zero =", all.zero);
  };
  return row;
}();

constexpr DecisionRow scatterGather = [] {
  DecisionRow row = oneValue<&Strategy::scatterGather, &Decisions::scatterGather>(
      "scatter_gather",
      [](const Decisions &all) {
        return all.scatterGather.value_or(0) == 0 ? "never" : fmt::format("from {} bytes", *all.scatterGather);
      },
      readScatterGather);
  row.open = nullptr; // it follows from the cluster
  row.line = [](const Decisions &all) { return all.scatterGather ? std::to_string(*all.scatterGather) : ""; };
  return row;
}();

constexpr DecisionRow table[] = {
    oneValue<&Strategy::mesh, &Decisions::mesh>(
        "mesh", [](const Decisions &all) { return meshText(all.mesh); }, readMesh),
    schedule,
    oneValue<&Strategy::microbatches, &Decisions::microbatches>(
        "microbatches", [](const Decisions &all) { return std::to_string(all.microbatches); }, nullptr),
    stages,
    recompute,
    sequence,
    zero,
    scatterGather};

// ---- options -------------------------------------------------------------------------------------------------------

constexpr DecisionOption options[] = {
    {"--schedule", false, [](Strategy &asked, const std::string &value) { asked.schedule = value; }},
    {"--virtual", false, [](Strategy &asked, const std::string &value) { asked.chunks = parseNumber<int64_t>(value); }},
    {"--microbatches", false,
     [](Strategy &asked, const std::string &value) { asked.microbatches = parseNumber<int64_t>(value); }},
    {"--recompute", false,
     [](Strategy &asked, const std::string &value) {
       asked.recompute = {{RecomputeRule::everyLayer, *recomputationNamed(value)}};
     }},
    {"--sequence-parallel", true,
     [](Strategy &asked, const std::string &) { asked.sequence = axisName(AxisRole::Tensor); }},
    {"--zero", false, [](Strategy &asked, const std::string &value) { asked.zero = parseNumber<int64_t>(value); }},
    {"--scatter-gather", false, [](Strategy &asked, const std::string &value) {
       if (value != "auto") // which leaves it open
         asked.scatterGather = value == "always";
     }}};

} // namespace

std::span<const DecisionRow> decisionTable() { return table; }

RowState stateOf(const DecisionRow &row, const Strategy &asked, bool searched) {
  if (row.open ? !row.open(asked) : row.given(asked))
    return RowState::Pinned;
  const bool free = !asked.mesh || row.isFree(*asked.mesh);
  return searched && free && row.open ? RowState::Open : RowState::Default;
}

std::span<const DecisionOption> decisionOptions() { return options; }

SplitChoice splitOf(const Decisions &all, int64_t batch) {
  SplitChoice split{.data = all.mesh.size(AxisRole::Data),
                    .tensor = all.mesh.size(AxisRole::Tensor),
                    .rows = batch / all.microbatches};
  for (const DecisionRow &row : table)
    if (row.tried)
      row.tried->choose(split, row.tried->of(all));
  return split;
}

void decide(Decisions &all, const SplitChoice &split) {
  for (const DecisionRow &row : table)
    if (row.tried)
      row.tried->decide(all, row.tried->chosen(split));
}

const DecisionRow *decisionNamed(std::string_view word) {
  const auto found = std::ranges::find(table, word, &DecisionRow::word);
  return found == std::end(table) ? nullptr : &*found;
}

std::optional<Recomputation> ofEveryLayer(std::span<const RecomputeRule> rules) {
  std::optional<Recomputation> kind;
  for (const RecomputeRule &rule : rules)
    if (rule.pattern == RecomputeRule::everyLayer)
      kind = rule.kind;
  return kind;
}

std::vector<const DecisionRow *> excludedBy(const Mesh &mesh, const Decisions &all) {
  std::vector<const DecisionRow *> found;
  for (const DecisionRow &row : table)
    if (row.refused && !row.isFree(mesh) && row.value(all) != row.value(Decisions()))
      found.push_back(&row);
  return found;
}

} // namespace cleave::partitioner
