// Reads requests as TOML, and combines them.
#include "partitioner/strategy/Request.h"

#include "partitioner/schedule/Named.h"
#include "partitioner/strategy/ShardKey.h"
#include "partitioner/toml/Toml.h"
#include "runtime/base/Error.h"
#include "runtime/base/InputFile.h"
#include "runtime/base/ParseNumber.h"
#include "runtime/base/Parts.h"

#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>

namespace cleave::partitioner {

static constexpr int64_t mostMicrobatches = 1 << 24;
static const std::string defaultSchedule = Strategy().schedule;

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

std::string stringAt(const std::string &file, const std::string &key, const toml::node &node) {
  if (auto text = node.value<std::string>())
    return *text;
  throw userError(fmt::format("{}: {} must be a string", at(file, node), key));
}

int64_t countAt(const std::string &file, const std::string &key, const toml::node &node, int64_t most) {
  const std::optional<int64_t> count = node.value_exact<int64_t>();
  if (!count || *count < 1 || *count > most)
    throw userError(fmt::format("{}: {} must be a whole number from 1 to {}", at(file, node), key, most));
  return *count;
}

/// A key that is a pattern of module paths.
std::string patternAt(const std::string &file, const std::string &pattern, const toml::node &node) {
  const std::vector<std::string> parts = partsOf(pattern, '.');
  if (std::find(parts.begin(), parts.end(), "") != parts.end() || pattern.find("**") != std::string::npos)
    throw userError(
        fmt::format("{}: \"{}\" is not a pattern of module paths like \"blocks.*.fc\"; * stands for any characters "
                    "but dots",
                    at(file, node), pattern));
  return pattern;
}

void readSchedule(const std::string &file, const toml::node &node, Request &request) {
  const toml::table *table = node.as_table();
  if (!table)
    throw userError(
        fmt::format("{}: schedule must be a table like {{ name = \"1f1b\", microbatches = 4 }}", at(file, node)));
  Origin origin = "file";
  for (auto &[key, value] : *table) {
    if (key == "name") {
      const std::string name = stringAt(file, "schedule.name", value);
      const std::vector<std::string> &names = scheduleNames();
      if (std::find(names.begin(), names.end(), name) == names.end())
        throw userError(fmt::format("{}: schedule.name must be one of {}, found \"{}\"", at(file, value),
                                    fmt::join(names, ", "), name));
      request.schedule = name;
    } else if (key == "microbatches") {
      request.microbatches = countAt(file, "schedule.microbatches", value, mostMicrobatches);
    } else if (key == "virtual") {
      request.chunks = countAt(file, "schedule.virtual, the stages of a rank,", value, largestAxis);
    } else if (key == "placement") {
      const std::string word = stringAt(file, "schedule.placement", value);
      if (word != "wrapped" && word != "v")
        throw userError(
            fmt::format("{}: schedule.placement must be \"wrapped\" or \"v\", found \"{}\"", at(file, value), word));
      request.placement = word == "v" ? Placement::V : Placement::Wrapped;
    } else if (key == "origin") {
      origin = stringAt(file, "schedule.origin", value);
    } else {
      throw userError(fmt::format("{}: schedule has name, microbatches, virtual, placement and origin, not \"{}\"",
                                  at(file, value), std::string(key.str())));
    }
  }
  const std::string schedule = request.schedule.value_or(defaultSchedule);
  if (request.placement.value_or(Placement::Wrapped) != Placement::Wrapped && schedule != searchedSchedule)
    throw userError(fmt::format("{}: schedule.placement is for the schedule \"{}\" alone, the schedule is \"{}\"",
                                at(file, node), searchedSchedule, schedule));
  request.scheduleOrigin = origin;
}

void readOrder(const std::string &file, const toml::node &node, Request &request) {
  const toml::array *orders = node.as_array();
  if (!orders)
    throw userError(fmt::format("{}: order must be an array with a text like \"F0 F1 B0 W0\" per rank of the pipeline",
                                at(file, node)));
  for (const toml::node &order : *orders)
    request.order.push_back(stringAt(file, "the order of a rank", order));
}

void readStages(const std::string &file, const toml::node &node, Request &request) {
  const toml::array *stages = node.as_array();
  if (!stages)
    throw userError(fmt::format("{}: stages must be an array with an array of module paths per stage", at(file, node)));
  request.stagesWhere = at(file, node);
  for (const toml::node &stage : *stages) {
    const toml::array *paths = stage.as_array();
    if (!paths)
      throw userError(fmt::format("{}: a stage must be an array of module paths", at(file, stage)));
    request.stages.emplace_back();
    for (const toml::node &path : *paths) {
      std::string name = stringAt(file, "a module path", path);
      if (!LayerUse::parse(name))
        throw userError(
            fmt::format("{}: stages: \"{}\" is not a module path; a later use of a layer is written \"embed use 2\"",
                        at(file, path), name));
      for (const std::vector<std::string> &before : request.stages)
        if (std::find(before.begin(), before.end(), name) != before.end())
          throw userError(fmt::format("{}: stages lists \"{}\" twice", at(file, path), name));
      request.stages.back().push_back(name);
    }
  }
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
    if (roleOf(axis) != AxisRole::Data && roleOf(axis) != AxisRole::Tensor)
      throw userError(fmt::format("{}: {} of \"{}\": axis \"{}\" is unknown; a tensor is split over dp or tp",
                                  at(file, value), key, rule.pattern, axis));
    if (std::find(seen.begin(), seen.end(), axis) != seen.end())
      throw userError(fmt::format("{}: {} of \"{}\": axis {} is named twice in \"{}\"", at(file, value), key,
                                  rule.pattern, axis, axes));
    seen.push_back(axis);
  }
  rule.dims[key] = axes;
}

/// The table at a key, whose entries are rules: the last one in the file that matches wins.
std::vector<TomlEntry> rulesAt(const std::string &file, const char *key, const toml::node &node) {
  if (const toml::table *table = node.as_table())
    return inFileOrder(*table);
  throw userError(fmt::format("{}: {} must be a table keyed by module path", at(file, node), key));
}

void readShard(const std::string &file, const toml::node &node, Request &request) {
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

void readOps(const std::string &file, const toml::node &node, Request &request) {
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

void readRecompute(const std::string &file, const toml::node &node, Request &request) {
  for (const auto &[pattern, value] : rulesAt(file, "recompute", node)) {
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
    request.recompute.push_back({path, *known, origin, at(file, *kind)});
  }
}

void checkDecision(const std::string &file, const toml::node &node, const std::string &name) {
  if (std::ranges::find(decisionWords, name) == std::end(decisionWords))
    throw userError(
        fmt::format("{}: decisions are {}; \"{}\" is none", at(file, node), fmt::join(decisionWords, ", "), name));
}

void readOrigins(const std::string &file, const toml::node &node, Request &request) {
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
void readFound(const std::string &file, const toml::node &node, Request &request) {
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

void readKind(const std::string &file, const toml::node &node, Request &request) {
  request.kind = stringAt(file, "kind", node);
  if (std::ranges::find(meshKinds, request.kind) == std::end(meshKinds))
    throw userError(fmt::format("{}: kind must be one of {}, found \"{}\"", at(file, node), fmt::join(meshKinds, ", "),
                                request.kind));
}

void readMarks(const std::string &file, const toml::node &node, Request &request) {
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

/// Whether the request decides one of decisionWords.
bool gives(const Request &request, const std::string &word) {
  return word == "mesh"           ? request.mesh.has_value()
         : word == "schedule"     ? request.schedule || request.chunks || request.placement || !request.order.empty()
         : word == "microbatches" ? request.microbatches.has_value()
         : word == "stages"       ? !request.stages.empty()
         : word == "recompute"    ? !request.recompute.empty()
         : word == "sequence"     ? request.sequence.has_value()
         : word == "zero"         ? request.zero.has_value()
                                  : request.scatterGather.has_value();
}

/// Sets the origins of what is given and has none.
void completeOrigins(Request &request, const Origin &source) {
  const auto known = request.origins.find("recompute");
  const Origin usual = known == request.origins.end() ? source : known->second;
  for (RecomputeRule &rule : request.recompute)
    if (rule.origin.empty())
      rule.origin = usual;
  std::erase_if(request.origins, [&](const auto &entry) { return !gives(request, entry.first); });
  for (const char *word : decisionWords)
    if (gives(request, word))
      request.origins.try_emplace(word, source);
  request.origins.erase("recompute"); // of its rules
}

} // namespace

void checkStageCount(const Strategy &strategy) {
  if (!strategy.stages.empty() && static_cast<int64_t>(strategy.stages.size()) != strategy.stageCount())
    throw userError(fmt::format("{}stages lists {} stages, {}", placed(strategy.stagesWhere), strategy.stages.size(),
                                strategy.stagesText()));
}

Request Request::parse(const std::string &text, const std::string &file) {
  const toml::table root = parseToml(text, file);
  Request request;
  for (auto &[key, node] : root) {
    if (key == "mesh" && node.is_table()) {
      request.mesh = oneDevice();
      for (auto &[axis, size] : *node.as_table()) {
        auto number = size.value<int64_t>();
        if (!number || !size.is_integer())
          throw userError(
              fmt::format("{}: the size of axis {} must be a whole number", at(file, size), std::string(axis.str())));
        setAxis(*request.mesh, std::string(axis.str()), *number, at(file, size));
      }
    } else if (key == "mesh") {
      if (!node.is_string())
        throw userError(fmt::format("{}: mesh must be a table like {{ dp = 2, tp = 2 }} or a text like \"dp=2,tp=2\"",
                                    at(file, node)));
      request.mesh = parseMesh(stringAt(file, "mesh", node));
    } else if (key == "schedule") {
      readSchedule(file, node, request);
    } else if (key == "order") {
      readOrder(file, node, request);
    } else if (key == "stages") {
      readStages(file, node, request);
    } else if (key == "shard") {
      readShard(file, node, request);
    } else if (key == "ops") {
      readOps(file, node, request);
    } else if (key == "sequence") {
      request.sequence = stringAt(file, "sequence", node);
      if (!request.sequence->empty() && roleOf(*request.sequence) != AxisRole::Tensor)
        throw userError(fmt::format("{}: sequence must be \"tp\", the axis that splits the sequence, found \"{}\"",
                                    at(file, node), *request.sequence));
    } else if (key == "zero") {
      request.zero = node.value_exact<int64_t>().value_or(-1);
      if (*request.zero < 0 || *request.zero > 3)
        throw userError(fmt::format("{}: zero must be a stage of ZeRO, 0 to 3", at(file, node)));
    } else if (key == "scatter_gather") {
      request.scatterGather = node.value_exact<int64_t>().value_or(-1);
      if (*request.scatterGather < 0)
        throw userError(fmt::format("{}: scatter_gather must be a number of bytes, or 0 for never", at(file, node)));
    } else if (key == "recompute") {
      readRecompute(file, node, request);
    } else if (key == "origin") {
      readOrigins(file, node, request);
    } else if (key == "found") {
      readFound(file, node, request);
    } else if (key == "kind") {
      readKind(file, node, request);
    } else if (key == "marks") {
      readMarks(file, node, request);
    } else {
      throw userError(
          fmt::format("{}: a strategy has mesh, schedule, order, sequence, zero, scatter_gather, stages, shard, ops, "
                      "recompute, kind, marks and origin, not \"{}\"",
                      at(file, node), std::string(key.str())));
    }
  }
  completeOrigins(request, "file");
  const Strategy complete = request.decided();
  if (!complete.order.empty() && complete.schedule != searchedSchedule)
    throw userError(fmt::format("{}: order is for the schedule \"{}\" alone, the schedule is \"{}\"", file,
                                searchedSchedule, complete.schedule));
  if (request.mesh) // else a search may find one
    checkStageCount(complete);
  return request;
}

Request Request::load(const std::string &path) { return parse(readTextFile(path, Status::User, 16 << 20), path); }

Request Request::askedBy(const Origin &source) const {
  Request all = *this;
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

/// Takes a value that is asked for.
template <class Value, class Asked> static void take(Value &value, const std::optional<Asked> &asked) {
  if (asked)
    value = *asked;
}

Request Request::with(const Request &over) const {
  Request all = *this;
  if (over.schedule && *over.schedule != schedule.value_or(defaultSchedule)) { // what belongs to the schedule goes, too
    all.order.clear();
    all.placement.reset();
    all.scheduleOrigin = over.scheduleOrigin;
  }
  take(all.mesh, over.mesh), take(all.schedule, over.schedule), take(all.placement, over.placement);
  take(all.microbatches, over.microbatches), take(all.chunks, over.chunks), take(all.sequence, over.sequence);
  take(all.zero, over.zero), take(all.scatterGather, over.scatterGather);
  if (!over.order.empty())
    all.order = over.order;
  if (!over.stages.empty())
    all.stages = over.stages, all.stagesWhere = over.stagesWhere;
  all.shard.insert(all.shard.end(), over.shard.begin(), over.shard.end());
  all.ops.insert(all.ops.end(), over.ops.begin(), over.ops.end());
  // Put first: the rules of this request, which are more specific than an option's, win.
  all.recompute.insert(all.recompute.begin(), over.recompute.begin(), over.recompute.end());
  for (const auto &[word, source] : over.origins)
    all.origins[word] = source;
  if (!over.kind.empty())
    all.kind = over.kind;
  return all;
}

Request Request::askedAgain(const Request &over) const {
  Request all = *this;
  const auto isAsked = [](const Origin &origin) { return origin == "command line" || origin == "file"; };
  const auto opens = [&](const char *word, bool replaced = false) {
    const auto known = origins.find(word);
    return replaced || known == origins.end() || !isAsked(known->second);
  };
  const bool moves = over.mesh && this->mesh && *over.mesh != *this->mesh;
  const auto alone = [&](AxisRole role) { return over.mesh && over.mesh->size(role) == 1; };
  const bool recuts = moves && over.mesh->size(AxisRole::Pipeline) != mesh->size(AxisRole::Pipeline);
  const auto mesh = origins.find("mesh");
  if (moves || (mesh != origins.end() && mesh->second == "search"))
    all.mesh.reset();
  if (over.mesh)
    all.kind.clear();
  if (opens("schedule", over.schedule || over.chunks || (moves && alone(AxisRole::Pipeline))))
    all.schedule.reset(), all.scheduleOrigin = Request().scheduleOrigin, all.chunks.reset(), all.placement.reset();
  if (opens("schedule", over.schedule || over.microbatches || over.chunks || recuts))
    all.order.clear();
  if (opens("microbatches"))
    all.microbatches.reset();
  if (opens("stages", recuts || over.chunks || over.schedule))
    all.stages.clear(), all.stagesWhere.clear();
  std::erase_if(all.recompute,
                [&](const RecomputeRule &rule) { return !over.recompute.empty() || !isAsked(rule.origin); });
  if (opens("sequence", moves && alone(AxisRole::Tensor)))
    all.sequence.reset();
  if (opens("zero", moves && alone(AxisRole::Data)))
    all.zero.reset();
  std::erase_if(all.shard, [](const ShardRule &rule) { return rule.origin == "search"; });
  std::erase_if(all.ops, [](const OpRules &rules) { return rules.origin == "search"; });
  if (opens("scatter_gather"))
    all.scatterGather.reset();
  all.marks.clear();
  std::erase_if(all.origins, [&](const auto &entry) { return !gives(all, entry.first); });
  return all.with(over);
}

Strategy Request::decided() const {
  Strategy strategy;
  strategy.mesh = mesh.value_or(oneDevice());
  take(strategy.schedule, schedule), take(strategy.placement, placement), take(strategy.microbatches, microbatches);
  take(strategy.chunks, chunks), take(strategy.sequence, sequence), take(strategy.zero, zero);
  strategy.scatterGather = scatterGather;
  strategy.scheduleOrigin = scheduleOrigin;
  strategy.order = order;
  strategy.stages = stages;
  strategy.stagesWhere = stagesWhere;
  strategy.shard = shard;
  strategy.ops = ops;
  strategy.recompute = recompute;
  strategy.origins = origins;
  strategy.kind = kind;
  strategy.marks = marks;
  return strategy;
}

Strategy Strategy::parse(const std::string &text, const std::string &file) {
  Strategy strategy = Request::parse(text, file).decided();
  checkStageCount(strategy);
  return strategy;
}

} // namespace cleave::partitioner
