// Parses meshes from their shorthand; reads and writes strategies as TOML.
#include "partitioner/strategy/Strategy.h"

#include "partitioner/schedule/Named.h"
#include "partitioner/strategy/ShardKey.h"
#include "partitioner/toml/Toml.h"
#include "runtime/base/Error.h"
#include "runtime/base/InputFile.h"
#include "runtime/base/ParseNumber.h"

#include <algorithm>
#include <charconv>
#include <fmt/format.h>
#include <fmt/ranges.h>

namespace cleave::partitioner {

static Mesh meshOf(int64_t dp, int64_t tp, int64_t pp) { return {{{"dp", dp}, {"tp", tp}, {"pp", pp}}}; }

static constexpr int64_t largestAxis = 1 << 20, mostMicrobatches = 1 << 24;

/// The parts of a text between separators; a separator at the end begins an empty part.
static std::vector<std::string> partsOf(const std::string &text, char separator) {
  std::vector<std::string> parts;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(separator, begin), text.size());
    parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

static void setAxis(Mesh &mesh, const std::string &name, int64_t size, const std::string &where) {
  for (MeshAxis &axis : mesh.axes)
    if (axis.name == name) {
      if (size < 1 || size > largestAxis)
        throw userError(
            fmt::format("{}: the size of axis {} must be between 1 and {}, it is {}", where, name, largestAxis, size));
      axis.size = size;
      return;
    }
  throw userError(fmt::format("{}: axis \"{}\" is unknown; a mesh has dp, tp and pp", where, name));
}

Mesh parseMesh(const std::string &text) {
  Mesh mesh = meshOf(1, 1, 1);
  std::string where = "mesh \"" + text + "\"";
  std::vector<std::string> seen;
  if (text.empty())
    throw userError("the mesh is empty; expected for example dp=2,tp=2,pp=2");
  for (const std::string &part : partsOf(text, ',')) {
    size_t equals = part.find('=');
    std::string name = part.substr(0, equals), number = equals == std::string::npos ? "" : part.substr(equals + 1);
    const std::optional<int64_t> size = parseNumber<int64_t>(number);
    if (name != "dp" && name != "tp" && name != "pp")
      throw userError(fmt::format("{}: axis \"{}\" is unknown; a mesh has dp, tp and pp", where, name));
    if (!size)
      throw userError(fmt::format("{}: the size of axis {} must be a whole number, it is \"{}\"", where, name, number));
    if (std::find(seen.begin(), seen.end(), name) != seen.end())
      throw userError(fmt::format("{}: axis {} is given twice", where, name));
    seen.push_back(name);
    setAxis(mesh, name, *size, where);
  }
  return mesh;
}

// The largest divisor of n that is at most its k-th root.
static int64_t evenShare(int64_t n, int64_t k) {
  int64_t best = 1;
  for (int64_t d = 1; d <= n; ++d) {
    int64_t power = 1;
    for (int64_t i = 0; i < k && power <= n; ++i)
      power *= d;
    if (power > n)
      break;
    if (n % d == 0)
      best = d;
  }
  return best;
}

Mesh meshFor(int64_t devices, const std::string &kind) {
  if (devices < 1 || devices > largestAxis)
    throw userError(fmt::format("the number of devices must be between 1 and {}, it is {}", largestAxis, devices));
  if (kind == "data")
    return meshOf(devices, 1, 1);
  if (kind == "model")
    return meshOf(1, devices, 1);
  if (kind == "pipeline")
    return meshOf(1, 1, devices);
  if (kind == "hybrid") {
    int64_t pp = evenShare(devices, 3), tp = evenShare(devices / pp, 2);
    return meshOf(devices / pp / tp, tp, pp);
  }
  if (kind == "auto")
    throw userError("strategy \"auto\" needs the automatic search, which this version does not have; give data, model, "
                    "pipeline, hybrid or a file");
  throw userError(fmt::format("strategy \"{}\" is neither data, model, pipeline, hybrid nor a file", kind));
}

static constexpr std::string_view useWord = " use ";

std::string LayerUse::str() const { return use == 1 ? path : fmt::format("{}{}{}", path, useWord, use); }

std::optional<LayerUse> LayerUse::parse(const std::string &text) {
  const size_t space = text.find(' ');
  LayerUse entry{text.substr(0, space)};
  if (space != std::string::npos) {
    const size_t number = space + useWord.size();
    const char *last = text.data() + text.size();
    if (text.compare(space, useWord.size(), useWord) != 0 ||
        std::from_chars(text.data() + number, last, entry.use).ptr != last || entry.use < 2)
      return std::nullopt;
  }
  return entry.path.empty() || entry.str() != text ? std::nullopt : std::optional(entry);
}

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
std::string patternAt(const std::string &file, const toml::key &key, const toml::node &node) {
  const std::string pattern(key.str());
  const std::vector<std::string> parts = partsOf(pattern, '.');
  if (std::find(parts.begin(), parts.end(), "") != parts.end() || pattern.find("**") != std::string::npos)
    throw userError(
        fmt::format("{}: \"{}\" is not a pattern of module paths like \"blocks.*.fc\"; * stands for any characters "
                    "but dots",
                    at(file, node), pattern));
  return pattern;
}

void readSchedule(const std::string &file, const toml::node &node, Strategy &strategy) {
  const toml::table *table = node.as_table();
  if (!table)
    throw userError(
        fmt::format("{}: schedule must be a table like {{ name = \"1f1b\", microbatches = 4 }}", at(file, node)));
  Origin origin = "file";
  for (auto &[key, value] : *table) {
    if (key == "name") {
      strategy.schedule = stringAt(file, "schedule.name", value);
      const std::vector<std::string> &names = scheduleNames();
      if (std::find(names.begin(), names.end(), strategy.schedule) == names.end())
        throw userError(fmt::format("{}: schedule.name must be one of {}, found \"{}\"", at(file, value),
                                    fmt::join(names, ", "), strategy.schedule));
    } else if (key == "microbatches") {
      strategy.microbatches = countAt(file, "schedule.microbatches", value, mostMicrobatches);
    } else if (key == "virtual") {
      strategy.chunks = countAt(file, "schedule.virtual, the stages of a rank,", value, largestAxis);
    } else if (key == "placement") {
      const std::string word = stringAt(file, "schedule.placement", value);
      if (word != "wrapped" && word != "v")
        throw userError(
            fmt::format("{}: schedule.placement must be \"wrapped\" or \"v\", found \"{}\"", at(file, value), word));
      strategy.placement = word == "v" ? Placement::V : Placement::Wrapped;
    } else if (key == "origin") {
      origin = stringAt(file, "schedule.origin", value);
    } else {
      throw userError(fmt::format("{}: schedule has name, microbatches, virtual, placement and origin, not \"{}\"",
                                  at(file, value), std::string(key.str())));
    }
  }
  if (strategy.placement != Placement::Wrapped && strategy.schedule != searchedSchedule)
    throw userError(fmt::format("{}: schedule.placement is for the schedule \"{}\" alone, the schedule is \"{}\"",
                                at(file, node), searchedSchedule, strategy.schedule));
  strategy.scheduleOrigin = origin;
}

void readOrder(const std::string &file, const toml::node &node, Strategy &strategy) {
  const toml::array *orders = node.as_array();
  if (!orders)
    throw userError(fmt::format("{}: order must be an array with a text like \"F0 F1 B0 W0\" per rank of the pipeline",
                                at(file, node)));
  for (const toml::node &order : *orders)
    strategy.order.push_back(stringAt(file, "the order of a rank", order));
}

void readStages(const std::string &file, const toml::node &node, Strategy &strategy) {
  const toml::array *stages = node.as_array();
  if (!stages)
    throw userError(fmt::format("{}: stages must be an array with an array of module paths per stage", at(file, node)));
  for (const toml::node &stage : *stages) {
    const toml::array *paths = stage.as_array();
    if (!paths)
      throw userError(fmt::format("{}: a stage must be an array of module paths", at(file, stage)));
    strategy.stages.emplace_back();
    for (const toml::node &path : *paths) {
      std::string name = stringAt(file, "a module path", path);
      if (!LayerUse::parse(name))
        throw userError(
            fmt::format("{}: stages: \"{}\" is not a module path; a later use of a layer is written \"embed use 2\"",
                        at(file, path), name));
      for (const std::vector<std::string> &before : strategy.stages)
        if (std::find(before.begin(), before.end(), name) != before.end())
          throw userError(fmt::format("{}: stages lists \"{}\" twice", at(file, path), name));
      strategy.stages.back().push_back(name);
    }
  }
  strategy.stagesOrigin = "file";
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
    if (axis != "dp" && axis != "tp")
      throw userError(fmt::format("{}: {} of \"{}\": axis \"{}\" is unknown; a tensor is split over dp or tp",
                                  at(file, value), key, rule.pattern, axis));
    if (std::find(seen.begin(), seen.end(), axis) != seen.end())
      throw userError(fmt::format("{}: {} of \"{}\": axis {} is named twice in \"{}\"", at(file, value), key,
                                  rule.pattern, axis, axes));
    seen.push_back(axis);
  }
  rule.dims[key] = axes;
}

void readShard(const std::string &file, const toml::node &node, Strategy &strategy) {
  const toml::table *table = node.as_table();
  if (!table)
    throw userError(fmt::format("{}: shard must be a table keyed by module path", at(file, node)));
  std::vector<std::pair<toml::source_position, ShardRule>> rules;
  for (auto &[pattern, value] : *table) {
    const toml::table *dims = value.as_table();
    if (!dims)
      throw userError(fmt::format("{}: the sharding of {} must be a table like {{ 0 = \"tp\" }}", at(file, value),
                                  std::string(pattern.str())));
    ShardRule rule{patternAt(file, pattern, value), {}, "file"};
    for (auto &[dim, axes] : *dims)
      readShardEntry(file, std::string(dim.str()), axes, rule);
    rules.push_back({value.source().begin, std::move(rule)});
  }
  // toml++ sorts a table by key, but the last matching rule in file order wins.
  std::stable_sort(rules.begin(), rules.end(), [](const auto &a, const auto &b) { return a.first < b.first; });
  for (auto &[where, rule] : rules)
    strategy.shard.push_back(std::move(rule));
}

void readRecompute(const std::string &file, const toml::node &node, Strategy &strategy) {
  const toml::table *table = node.as_table();
  if (!table)
    throw userError(fmt::format("{}: recompute must be a table keyed by module path", at(file, node)));
  std::vector<std::pair<toml::source_position, RecomputeRule>> rules;
  for (auto &[pattern, kind] : *table) {
    const std::string path = patternAt(file, pattern, kind), word = stringAt(file, "recompute of " + path, kind);
    const std::optional<Recomputation> known = recomputationNamed(word);
    if (!known)
      throw userError(
          fmt::format("{}: recompute of {} must be none, selective or full, found \"{}\"", at(file, kind), path, word));
    rules.push_back({kind.source().begin, {path, *known, "file"}});
  }
  std::stable_sort(rules.begin(), rules.end(), [](const auto &a, const auto &b) { return a.first < b.first; });
  for (auto &[where, rule] : rules)
    strategy.recompute.push_back(std::move(rule));
}

} // namespace

const char *text(Recomputation kind) {
  return kind == Recomputation::None ? "none" : kind == Recomputation::Selective ? "selective" : "full";
}

std::optional<Recomputation> recomputationNamed(const std::string &word) {
  for (const Recomputation kind : {Recomputation::None, Recomputation::Selective, Recomputation::Full})
    if (word == text(kind))
      return kind;
  return std::nullopt;
}

Strategy Strategy::parse(const std::string &text, const std::string &file) {
  const toml::table root = parseToml(text, file);
  Strategy strategy;
  strategy.mesh = meshOf(1, 1, 1);
  for (auto &[key, node] : root) {
    if (key == "mesh" && node.is_table()) {
      for (auto &[axis, size] : *node.as_table()) {
        auto number = size.value<int64_t>();
        if (!number || !size.is_integer())
          throw userError(
              fmt::format("{}: the size of axis {} must be a whole number", at(file, size), std::string(axis.str())));
        setAxis(strategy.mesh, std::string(axis.str()), *number, at(file, size));
      }
    } else if (key == "mesh") {
      if (!node.is_string())
        throw userError(fmt::format("{}: mesh must be a table like {{ dp = 2, tp = 2 }} or a text like \"dp=2,tp=2\"",
                                    at(file, node)));
      strategy.mesh = parseMesh(stringAt(file, "mesh", node));
    } else if (key == "schedule") {
      readSchedule(file, node, strategy);
    } else if (key == "order") {
      readOrder(file, node, strategy);
    } else if (key == "stages") {
      readStages(file, node, strategy);
    } else if (key == "shard") {
      readShard(file, node, strategy);
    } else if (key == "sequence") {
      strategy.sequence = stringAt(file, "sequence", node);
      if (!strategy.sequence.empty() && strategy.sequence != "tp")
        throw userError(fmt::format("{}: sequence must be \"tp\", the axis that splits the sequence, found \"{}\"",
                                    at(file, node), strategy.sequence));
    } else if (key == "zero") {
      strategy.zero = node.value_exact<int64_t>().value_or(-1);
      if (strategy.zero < 0 || strategy.zero > 3)
        throw userError(fmt::format("{}: zero must be a stage of ZeRO, 0 to 3", at(file, node)));
    } else if (key == "scatter_gather") {
      strategy.scatterGather = node.value_exact<int64_t>().value_or(-1);
      if (*strategy.scatterGather < 0)
        throw userError(fmt::format("{}: scatter_gather must be a number of bytes, or 0 for never", at(file, node)));
    } else if (key == "recompute") {
      readRecompute(file, node, strategy);
    } else {
      throw userError(
          fmt::format("{}: a strategy has mesh, schedule, order, sequence, zero, scatter_gather, stages, shard and "
                      "recompute, not \"{}\"",
                      at(file, node), std::string(key.str())));
    }
  }
  if (!strategy.order.empty() && strategy.schedule != searchedSchedule)
    throw userError(fmt::format("{}: order is for the schedule \"{}\" alone, the schedule is \"{}\"", file,
                                searchedSchedule, strategy.schedule));
  if (!strategy.stages.empty() && (int64_t)strategy.stages.size() != strategy.stageCount())
    throw userError(fmt::format("{}: stages lists {} stages, {}", file, strategy.stages.size(), strategy.stagesText()));
  return strategy;
}

int64_t Strategy::positionOf(int64_t stage) const {
  return Schedule{.ranks = mesh.size("pp"),
                  .placement = schedule == searchedSchedule ? placement : placementOf(schedule)}
      .rankOf(stage);
}

BackwardPass Strategy::backward() const {
  if (schedule != searchedSchedule)
    return backwardOf(schedule);
  const bool weights = std::any_of(order.begin(), order.end(),
                                   [](const std::string &text) { return text.find('W') != std::string::npos; });
  return weights || order.empty() ? BackwardPass::Split : BackwardPass::Joined;
}

Schedule Strategy::plannedSchedule() const {
  if (schedule != searchedSchedule)
    return namedSchedule(schedule, mesh.size("pp"), chunks, microbatches);
  Schedule made{schedule, mesh.size("pp"), chunks, microbatches, placement};
  if (int64_t(order.size()) != made.ranks)
    throw userError(fmt::format("order: must list the works of every rank of the pipeline, {} of them, found {}",
                                made.ranks, order.size()));
  for (const std::string &text : order)
    addOrder(made, text);
  if (const auto defect = check(made))
    throw userError("order: " + *defect);
  if (const auto work = descendingWork(made))
    throw userError(
        fmt::format("order: {} must come before those of later microbatches, so that sums are added in the order "
                    "of microbatches",
                    longName(*work)));
  return made;
}

void Strategy::setSchedule(const Schedule &made, const Origin &origin) {
  schedule = made.name;
  scheduleOrigin = origin;
  chunks = made.chunks;
  order.clear();
  placement = Placement::Wrapped;
  if (schedule != searchedSchedule)
    return;
  placement = made.placement;
  for (int64_t rank = 0; rank < made.ranks; ++rank)
    order.push_back(orderText(made, rank));
}

std::string Strategy::stagesText() const {
  const int64_t pp = mesh.size("pp");
  return chunks == 1 ? fmt::format("the mesh has pp = {}", pp)
                     : fmt::format("the mesh has pp = {} with {} stages on each of its ranks", pp, chunks);
}

std::vector<int64_t> Strategy::stagesAt(int64_t position) const {
  std::vector<int64_t> found;
  for (int64_t stage = 0; stage < stageCount(); ++stage)
    if (positionOf(stage) == position)
      found.push_back(stage);
  return found;
}

Strategy Strategy::load(const std::string &path) { return parse(readTextFile(path, Status::User, 16 << 20), path); }

std::string Strategy::toToml() const {
  std::string out = fmt::format(
      "mesh = {{ dp = {}, tp = {}, pp = {} }}\nschedule = {{ name = {}, microbatches = {}{}{}{} }}\n", mesh.size("dp"),
      mesh.size("tp"), mesh.size("pp"), quote(schedule), microbatches,
      chunks > 1 ? fmt::format(", virtual = {}", chunks) : "", placement == Placement::V ? ", placement = \"v\"" : "",
      scheduleOrigin == "search" ? ", origin = \"search\"" : "");
  if (!order.empty()) {
    out += "order = [\n";
    for (const std::string &text : order)
      out += fmt::format("  {},\n", quote(text));
    out += "]\n";
  }
  if (!sequence.empty())
    out += fmt::format("sequence = {}\n", quote(sequence));
  if (zero)
    out += fmt::format("zero = {}\n", zero);
  if (scatterGather.value_or(0))
    out += fmt::format("scatter_gather = {}\n", *scatterGather);
  if (!stages.empty()) {
    out += fmt::format("# origin: {}\nstages = [\n", stagesOrigin);
    for (const auto &stage : stages) {
      std::vector<std::string> quoted;
      for (const std::string &path : stage)
        quoted.push_back(quote(path));
      out += fmt::format("  [{}],\n", fmt::join(quoted, ", "));
    }
    out += "]\n";
  }
  if (!shard.empty())
    out += "[shard]\n";
  for (const ShardRule &rule : shard) {
    std::string dims;
    for (auto &[dim, axes] : rule.dims)
      dims += fmt::format("{} = {}, ", quote(dim), quote(axes));
    out += fmt::format("{} = {{ {}origin = {} }}\n", quote(rule.pattern), dims, quote(rule.origin));
  }
  if (!recompute.empty())
    out += "[recompute]\n";
  for (const RecomputeRule &rule : recompute)
    out += fmt::format("{} = {}\n", quote(rule.pattern), quote(text(rule.kind)));
  return out;
}

} // namespace cleave::partitioner
