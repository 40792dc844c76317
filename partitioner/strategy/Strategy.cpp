// Meshes from their shorthand, and strategies to and from TOML.
#include "partitioner/strategy/Strategy.h"

#include "partitioner/schedule/Schedule.h"
#include "runtime/base/Error.h"
#include "runtime/base/InputFile.h"

#include <algorithm>
#include <charconv>
#include <fmt/format.h>
#include <sstream>

#define TOML_HEADER_ONLY 1
#include <toml++/toml.h>

namespace cleave::partitioner {

static Mesh meshOf(int64_t dp, int64_t tp, int64_t pp) { return {{{"dp", dp}, {"tp", tp}, {"pp", pp}}}; }

static constexpr int64_t largestAxis = 1 << 20;

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
  std::stringstream parts(text);
  std::string part;
  if (text.empty())
    throw userError("the mesh is empty; it reads like dp=2,tp=2,pp=2");
  while (std::getline(parts, part, ',')) {
    size_t equals = part.find('=');
    std::string name = part.substr(0, equals), number = equals == std::string::npos ? "" : part.substr(equals + 1);
    int64_t size = 0;
    auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), size);
    if (name != "dp" && name != "tp" && name != "pp")
      throw userError(fmt::format("{}: axis \"{}\" is unknown; a mesh has dp, tp and pp", where, name));
    if (error != std::errc() || end != number.data() + number.size())
      throw userError(fmt::format("{}: the size of axis {} must be a whole number, it is \"{}\"", where, name, number));
    if (std::find(seen.begin(), seen.end(), name) != seen.end())
      throw userError(fmt::format("{}: axis {} is given twice", where, name));
    seen.push_back(name);
    setAxis(mesh, name, size, where);
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

namespace {

std::string at(const std::string &file, const toml::node &node) {
  return fmt::format("{}:{}:{}", file, node.source().begin.line, node.source().begin.column);
}

std::string stringAt(const std::string &file, const std::string &key, const toml::node &node) {
  if (auto text = node.value<std::string>())
    return *text;
  throw userError(fmt::format("{}: {} must be a string", at(file, node), key));
}

void readSchedule(const std::string &file, const toml::node &node, Strategy &strategy) {
  const toml::table *table = node.as_table();
  if (!table)
    throw userError(
        fmt::format("{}: schedule must be a table like {{ name = \"1f1b\", microbatches = 4 }}", at(file, node)));
  for (auto &[key, value] : *table) {
    if (key == "name") {
      strategy.schedule = stringAt(file, "schedule.name", value);
      makeSchedule(strategy.schedule, 1, 1); // refuses an unknown name
    } else if (key == "microbatches") {
      auto count = value.value<int64_t>();
      if (!count || *count < 1)
        throw userError(fmt::format("{}: schedule.microbatches must be a whole number of at least 1", at(file, value)));
      strategy.microbatches = *count;
    } else {
      throw userError(
          fmt::format("{}: schedule has name and microbatches, not \"{}\"", at(file, value), std::string(key.str())));
    }
  }
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
            fmt::format("{}: stages: \"{}\" is no module path; a later use of a layer reads \"embed use 2\"",
                        at(file, path), name));
      for (const std::vector<std::string> &before : strategy.stages)
        if (std::find(before.begin(), before.end(), name) != before.end())
          throw userError(fmt::format("{}: stages lists \"{}\" twice", at(file, path), name));
      strategy.stages.back().push_back(name);
    }
  }
  strategy.stagesOrigin = "file";
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
    ShardRule rule{std::string(pattern.str()), {}, "file"};
    for (auto &[dim, axes] : *dims) {
      std::string name(dim.str());
      if (name == "origin")
        rule.origin = stringAt(file, "origin", axes);
      else if (axes.is_string())
        rule.dims[name] = stringAt(file, name, axes);
      else if (!axes.is_number() || name == "heads" ||
               (!name.empty() && name[0] >= '0' && name[0] <= '9')) // other numbers are costs
        throw userError(fmt::format("{}: {} of {} must name mesh axes", at(file, axes), name, rule.pattern));
    }
    rules.push_back({value.source().begin, std::move(rule)});
  }
  // A table is kept by key; the last rule that matches wins in the order of the file.
  std::stable_sort(rules.begin(), rules.end(), [](const auto &a, const auto &b) { return a.first < b.first; });
  for (auto &[where, rule] : rules)
    strategy.shard.push_back(std::move(rule));
}

} // namespace

/// toml++ recurses into a key a.b.c..., whatever its length. Dots inside quotes are no such.
static void refuseDeepKeys(const std::string &text, const std::string &file) {
  constexpr int most = 64;
  int line = 1, dots = 0;
  char quote = 0;
  for (const char c : text) {
    if (c == '\n') {
      ++line;
      dots = 0;
      quote = 0; // of a string that ends here, or goes on and holds no key
    } else if (quote)
      quote = c == quote ? 0 : quote;
    else if (c == '"' || c == '\'')
      quote = c;
    else if (c == '.' && ++dots > most)
      throw userError(fmt::format("{}:{}: a key must have at most {} parts", file, line, most));
  }
}

Strategy Strategy::parse(const std::string &text, const std::string &file) {
  refuseDeepKeys(text, file);
  toml::table root;
  try {
    root = toml::parse(text, file);
  } catch (const toml::parse_error &error) {
    throw userError(fmt::format("{}:{}:{}: {}", file, error.source().begin.line, error.source().begin.column,
                                std::string(error.description())));
  }
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
    } else if (key == "stages") {
      readStages(file, node, strategy);
    } else if (key == "shard") {
      readShard(file, node, strategy);
    } else if (key == "recompute") {
      if (const toml::table *table = node.as_table())
        for (auto &[path, kind] : *table)
          if (kind.value<std::string>() != std::optional<std::string>("none"))
            throw userError(fmt::format("{}: recomputation of {} other than \"none\" is not available", at(file, kind),
                                        std::string(path.str())));
    } else {
      throw userError(fmt::format("{}: a strategy has mesh, schedule, stages, shard and recompute, not \"{}\"",
                                  at(file, node), std::string(key.str())));
    }
  }
  int64_t pp = strategy.mesh.size("pp");
  if (!strategy.stages.empty() && (int64_t)strategy.stages.size() != pp)
    throw userError(fmt::format("{}: stages lists {} stages, the mesh has pp = {}", file, strategy.stages.size(), pp));
  return strategy;
}

Strategy Strategy::load(const std::string &path) {
  return parse(readTextFile(path, Status::User, 16 << 20), path);
}

std::string Strategy::toToml() const {
  auto quote = [](const std::string &text) { return "\"" + text + "\""; };
  std::string out =
      fmt::format("mesh = {{ dp = {}, tp = {}, pp = {} }}\nschedule = {{ name = {}, microbatches = {} }}\n",
                  mesh.size("dp"), mesh.size("tp"), mesh.size("pp"), quote(schedule), microbatches);
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
  return out;
}

} // namespace cleave::partitioner
