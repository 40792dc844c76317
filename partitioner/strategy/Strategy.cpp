// Reads requests as TOML, and combines them.
#include "partitioner/strategy/Decisions.h"

#include "partitioner/strategy/DecisionTable.h"
#include "partitioner/strategy/ReadToml.h"
#include "partitioner/strategy/ShardKey.h"
#include "runtime/base/Error.h"
#include "runtime/base/InputFile.h"
#include "runtime/base/ParseNumber.h"
#include "runtime/base/Parts.h"

#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <map>

namespace cleave::partitioner {

std::optional<ShardKey> ShardKey::parse(const std::string &text) {
  if (text == "heads")
    return ShardKey{.heads = true};
  const size_t colon = text.find(':'), dot = text.find('.');
  const std::optional<int64_t> dim = parseNumber<int64_t>(text.substr(0, colon));
  if (!dim || *dim < 0)
    return std::nullopt;
  if (colon == std::string::npos)
    return ShardKey{.dim = *dim};
  ShardKey key{.dim = *dim};
  if (dot == std::string::npos || dot < colon)
    return std::nullopt;
  for (const std::string &part : partsOf(text.substr(colon + 1, dot - colon - 1), 'x')) {
    const std::optional<int64_t> size = parseNumber<int64_t>(part);
    if (!size || *size < 1)
      return std::nullopt;
    key.factors.push_back(*size);
  }
  const std::optional<int64_t> factor = parseNumber<int64_t>(text.substr(dot + 1));
  if (!factor || *factor < 0 || *factor >= static_cast<int64_t>(key.factors.size()))
    return std::nullopt;
  key.factor = static_cast<size_t>(*factor);
  return key;
}

namespace {

void readOrder(Strategy &request, const TomlPlace &entry) {
  const auto &[file, node] = entry;
  const toml::array *orders = node.as_array();
  if (!orders)
    throw userError(fmt::format("{}: order must be an array with a text like \"F0 F1 B0 W0\" per rank of the pipeline",
                                at(file, node)));
  for (const toml::node &order : *orders)
    request.order.push_back(stringAt(file, "the order of a rank", order));
}

void readShardEntry(const std::string &file, const std::string &key, const toml::node &value, ShardRule &rule) {
  if (key == "origin") {
    rule.origin = stringAt(file, "origin", value);
    return;
  }
  if (key.ends_with("_ms") && value.is_number()) // a cost, for people
    return;
  if (!ShardKey::parse(key))
    throw userError(
        fmt::format("{}: \"{}\" of \"{}\" is not a dimension; it reads like 0, or 0:3x4x16.1 for a factor of "
                    "dimension 0, or heads (origin and costs like next_best_ms may stand beside)",
                    at(file, value), key, rule.pattern));
  if (!value.is_string())
    throw userError(fmt::format("{}: {} of {} must name mesh axes", at(file, value), key, rule.pattern));
  const std::string axes = stringAt(file, key, value);
  std::vector<std::string> seen;
  for (const std::string &axis : axes.empty() ? std::vector<std::string>{} : partsOf(axes, '+')) {
    if (!splitsTensors(axis))
      throw userError(fmt::format("{}: {} of \"{}\": axis \"{}\" is unknown; a tensor is split over {}",
                                  at(file, value), key, rule.pattern, axis, splittingAxesText()));
    if (std::find(seen.begin(), seen.end(), axis) != seen.end())
      throw userError(fmt::format("{}: {} of \"{}\": axis {} is named twice in \"{}\"", at(file, value), key,
                                  rule.pattern, axis, axes));
    seen.push_back(axis);
  }
  rule.dims[key] = axes;
}

void readShard(Strategy &request, const TomlPlace &entry) {
  const auto &[file, node] = entry;
  for (const auto &[pattern, value] : rulesAt(file, "shard", node)) {
    const toml::table *dims = value->as_table();
    if (!dims)
      throw userError(
          fmt::format("{}: the sharding of {} must be a table like {{ 0 = \"tp\" }}", at(file, *value), pattern));
    ShardRule rule{patternAt(file, pattern, *value), {}, "file", at(file, *value)};
    for (auto &[dim, axes] : *dims)
      readShardEntry(file, std::string(dim.str()), axes, rule);
    request.shard.push_back(std::move(rule));
  }
}

void readOps(Strategy &request, const TomlPlace &entry) {
  const auto &[file, node] = entry;
  for (const auto &[pattern, value] : rulesAt(file, "ops", node)) {
    const toml::table *entries = value->as_table();
    if (!entries)
      throw userError(fmt::format("{}: the ops of {} must be a table like {{ matmul = \"dp, _ ; _, tp -> dp, tp\" }}",
                                  at(file, *value), pattern));
    // Ops outside of all modules have the path "".
    OpRules rules{pattern.empty() ? pattern : patternAt(file, pattern, *value), {}, "file"};
    for (auto &[label, decision] : *entries)
      (label == "origin" ? rules.origin : rules.ops[std::string(label.str())]) =
          stringAt(file, fmt::format("{} of the ops of {}", std::string(label.str()), pattern), decision);
    request.ops.push_back(std::move(rules));
  }
}

void checkDecision(const std::string &file, const toml::node &node, const std::string &name) {
  std::vector<std::string_view> words;
  for (const DecisionRow &row : decisionTable())
    words.emplace_back(row.word);
  if (!decisionNamed(name))
    throw userError(fmt::format("{}: decisions are {}; \"{}\" is none", at(file, node), fmt::join(words, ", "), name));
}

void readOrigins(Strategy &request, const TomlPlace &entry) {
  const auto &[file, node] = entry;
  const toml::table *table = node.as_table();
  if (!table)
    throw userError(
        fmt::format("{}: origin must be a table like {{ mesh = \"search\", zero = \"file\" }}", at(file, node)));
  for (auto &[word, source] : *table) {
    checkDecision(file, source, std::string(word.str()));
    request.origins[std::string(word.str())] = stringAt(file, "an origin", source);
  }
}

/// What files had in place of `origin`: the decisions that nobody asked for.
void readFound(Strategy &request, const TomlPlace &entry) {
  const auto &[file, node] = entry;
  const toml::array *words = node.as_array();
  if (!words)
    throw userError(fmt::format("{}: found must be an array of decisions like \"mesh\"", at(file, node)));
  for (const toml::node &word : *words) {
    const std::string name = stringAt(file, "a decision", word);
    checkDecision(file, word, name);
    request.origins[name] = "search";
  }
  request.origins["scatter_gather"] = "default"; // such files do not say
}

void readKind(Strategy &request, const TomlPlace &entry) {
  const auto &[file, node] = entry;
  request.kind = stringAt(file, "kind", node);
  if (std::ranges::find(meshKinds, request.kind) == std::end(meshKinds))
    throw userError(fmt::format("{}: kind must be one of {}, found \"{}\"", at(file, node), fmt::join(meshKinds, ", "),
                                request.kind));
}

void readMarks(Strategy &request, const TomlPlace &entry) {
  const auto &[file, node] = entry;
  const auto refuse = [&](const toml::node &where) {
    throw userError(
        fmt::format("{}: marks must be an array of tables with path, axes and at; they are what the code says, and "
                    "change nothing here",
                    at(file, where)));
  };
  const toml::array *marks = node.as_array();
  if (!marks)
    refuse(node);
  for (const toml::node &entry : *marks) {
    const toml::table *table = entry.as_table();
    const toml::array *axes = table ? table->get_as<toml::array>("axes") : nullptr;
    if (!axes || table->size() != 3 || !table->contains("path") || !table->contains("at"))
      refuse(entry);
    Mark mark{stringAt(file, "path", *table->get("path")), {}, stringAt(file, "at", *table->get("at"))};
    for (const toml::node &axis : *axes)
      mark.axes.push_back(stringAt(file, "axes", axis));
    request.marks.push_back(std::move(mark));
  }
}

/// The entries that are no decision about the whole step.
const std::map<std::string_view, void (*)(Strategy &, const TomlPlace &)> otherEntries = {
    {"order", readOrder}, {"shard", readShard}, {"ops", readOps},    {"origin", readOrigins},
    {"found", readFound}, {"kind", readKind},   {"marks", readMarks}};

/// Sets the origins of what is given and has none.
void completeOrigins(Strategy &request, const Origin &source) {
  const auto known = request.origins.find("recompute");
  const Origin usual = known == request.origins.end() ? source : known->second;
  for (RecomputeRule &rule : request.recompute)
    if (rule.origin.empty())
      rule.origin = usual;
  std::erase_if(request.origins, [&](const auto &entry) { return !decisionNamed(entry.first)->given(request); });
  for (const DecisionRow &row : decisionTable())
    if (row.given(request))
      request.origins.try_emplace(std::string(row.word), source);
  request.origins.erase("recompute"); // of its rules
}

} // namespace

void checkStageCount(const Decisions &strategy) {
  if (!strategy.stages.empty() && static_cast<int64_t>(strategy.stages.size()) != strategy.stageCount())
    throw userError(fmt::format("{}stages lists {} stages, {}", placed(strategy.stagesWhere), strategy.stages.size(),
                                strategy.stagesText()));
}

Strategy Strategy::parse(const std::string &text, const std::string &file) {
  const toml::table root = parseToml(text, file);
  Strategy request;
  for (auto &[key, node] : root) {
    const DecisionRow *row = decisionNamed(key.str());
    if (row && row->read) {
      row->read(request, {file, node});
    } else if (const auto other = otherEntries.find(key.str()); other != otherEntries.end()) {
      other->second(request, {file, node});
    } else {
      throw userError(
          fmt::format("{}: a strategy has mesh, schedule, order, sequence, zero, scatter_gather, stages, shard, ops, "
                      "recompute, kind, marks and origin, not \"{}\"",
                      at(file, node), std::string(key.str())));
    }
  }
  completeOrigins(request, "file");
  const Decisions complete = request.decided();
  if (!complete.order.empty() && complete.schedule != searchedSchedule)
    throw userError(fmt::format("{}: order is for the schedule \"{}\" alone, the schedule is \"{}\"", file,
                                searchedSchedule, complete.schedule));
  if (request.mesh) // else a search may find one
    checkStageCount(complete);
  return request;
}

Strategy Strategy::load(const std::string &path) { return parse(readTextFile(path, Status::User, 16 << 20), path); }

Strategy Strategy::askedBy(const Origin &source) const {
  Strategy all = *this;
  all.origins.clear(), all.marks.clear();
  if (all.mesh)
    all.kind.clear();
  for (ShardRule &rule : all.shard)
    rule.origin = source;
  for (OpRules &rules : all.ops)
    rules.origin = source;
  for (RecomputeRule &rule : all.recompute)
    rule.origin = source;
  completeOrigins(all, source);
  return all;
}

Strategy Strategy::with(const Strategy &over) const {
  Strategy all = *this;
  for (const DecisionRow &row : decisionTable())
    if (row.given(over))
      row.take(all, over);
  all.shard.insert(all.shard.end(), over.shard.begin(), over.shard.end());
  all.ops.insert(all.ops.end(), over.ops.begin(), over.ops.end());
  for (const auto &[word, source] : over.origins)
    all.origins[word] = source;
  if (!over.kind.empty())
    all.kind = over.kind;
  return all;
}

Strategy Strategy::askedAgain(const Strategy &over) const {
  Strategy all = *this;
  const auto isAsked = [](const Origin &origin) { return origin == "command line" || origin == "file"; };
  const auto sourceOf = [&](const DecisionRow &row) {
    const auto known = origins.find(std::string(row.word));
    return known == origins.end() ? Origin("default") : known->second;
  };
  const bool moves = over.mesh && mesh && *over.mesh != *mesh,
             recuts = moves && over.mesh->size(AxisRole::Pipeline) != mesh->size(AxisRole::Pipeline);
  std::erase_if(all.recompute,
                [&](const RecomputeRule &rule) { return !over.recompute.empty() || !isAsked(rule.origin); });
  for (const DecisionRow &row : decisionTable()) {
    if (row.word == "recompute") // its rules have origins of their own
      continue;
    const bool kept = row.word == "mesh"
                          ? !moves && sourceOf(row) != "search"
                          : isAsked(sourceOf(row)) && !row.given(over) && (!moves || row.isFree(*over.mesh));
    if (!kept)
      row.drop(all);
  }
  if (recuts || over.chunks || over.schedule)
    decisionNamed("stages")->drop(all);
  if (recuts || over.microbatches)
    all.order.clear();
  if (over.mesh)
    all.kind.clear();
  std::erase_if(all.shard, [](const ShardRule &rule) { return rule.origin == "search"; });
  std::erase_if(all.ops, [](const OpRules &rules) { return rules.origin == "search"; });
  all.marks.clear();
  std::erase_if(all.origins, [&](const auto &entry) { return !decisionNamed(entry.first)->given(all); });
  return all.with(over);
}

Decisions Strategy::decided() const {
  Decisions all;
  all.mesh = oneDevice();
  for (const DecisionRow &row : decisionTable())
    row.decide(all, *this);
  all.shard = shard;
  all.ops = ops;
  all.origins = origins;
  all.kind = kind;
  all.marks = marks;
  return all;
}

Decisions Decisions::parse(const std::string &text, const std::string &file) {
  Decisions strategy = Strategy::parse(text, file).decided();
  checkStageCount(strategy);
  return strategy;
}

} // namespace cleave::partitioner
