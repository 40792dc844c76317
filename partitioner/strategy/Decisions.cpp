// What follows from decisions; writes them as TOML.
#include "partitioner/strategy/Decisions.h"

#include "partitioner/schedule/Named.h"
#include "partitioner/strategy/DecisionTable.h"
#include "partitioner/toml/Toml.h"
#include "runtime/base/Error.h"

#include <algorithm>
#include <charconv>
#include <fmt/format.h>
#include <fmt/ranges.h>

namespace cleave::partitioner {

static constexpr std::string_view useWord = " use ";

std::string placed(const std::string &where) { return where.empty() ? "" : where + ": "; }

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

const char *text(Recomputation kind) {
  return kind == Recomputation::None ? "none" : kind == Recomputation::Selective ? "selective" : "full";
}

std::optional<Recomputation> recomputationNamed(const std::string &word) {
  for (const Recomputation kind : {Recomputation::None, Recomputation::Selective, Recomputation::Full})
    if (word == text(kind))
      return kind;
  return std::nullopt;
}

int64_t Decisions::positionOf(int64_t stage) const {
  return Schedule{.ranks = mesh.size(AxisRole::Pipeline),
                  .placement = schedule == searchedSchedule ? placement : placementOf(schedule)}
      .rankOf(stage);
}

BackwardPass Decisions::backward() const {
  if (schedule != searchedSchedule)
    return backwardOf(schedule);
  const bool weights = std::any_of(order.begin(), order.end(),
                                   [](const std::string &text) { return text.find('W') != std::string::npos; });
  return weights || order.empty() ? BackwardPass::Split : BackwardPass::Joined;
}

Schedule Decisions::plannedSchedule() const {
  if (schedule != searchedSchedule)
    return namedSchedule(schedule, mesh.size(AxisRole::Pipeline), chunks, microbatches);
  Schedule made{schedule, mesh.size(AxisRole::Pipeline), chunks, microbatches, placement};
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

void Decisions::setSchedule(const Schedule &made, const Origin &origin) {
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

void Decisions::complete(bool trains) {
  if (chunks < 1 || static_cast<int64_t>(stages.size()) != stageCount())
    throw Error(Status::Internal, fmt::format("strategy: {}, but {} are decided", stagesText(), stages.size()));
  if (trains)
    work = plannedSchedule();
}

std::string Decisions::stagesText() const {
  const int64_t pp = mesh.size(AxisRole::Pipeline);
  return chunks == 1 ? fmt::format("the mesh has pp = {}", pp)
                     : fmt::format("the mesh has pp = {} with {} stages on each of its ranks", pp, chunks);
}

std::vector<int64_t> Decisions::stagesAt(int64_t position) const {
  std::vector<int64_t> found;
  for (int64_t stage = 0; stage < stageCount(); ++stage)
    if (positionOf(stage) == position)
      found.push_back(stage);
  return found;
}

Origin Decisions::originOf(const std::string &decision) const {
  if (decision == "recompute") {
    Origin origin = "default";
    for (const RecomputeRule &rule : recompute)
      if (rule.pattern == RecomputeRule::everyLayer)
        origin = rule.origin;
    return origin;
  }
  const auto found = origins.find(decision);
  return found == origins.end() ? "default" : found->second;
}

/// A rule's value; its origin if that is not the one of all rules.
static std::string recomputeText(const RecomputeRule &rule, const Origin &usual) {
  return rule.origin == usual ? quote(text(rule.kind))
                              : fmt::format("{{ kind = {}, origin = {} }}", quote(text(rule.kind)), quote(rule.origin));
}

std::string Decisions::toToml() const {
  std::vector<std::string> sizes, sources;
  for (const Axis &axis : axisTable)
    sizes.push_back(fmt::format("{} = {}", axis.name, mesh.size(axis.name)));
  const std::string axes =
      mesh.order == usualOrder ? fmt::format("{{ {} }}", fmt::join(sizes, ", ")) : quote(meshText(mesh));
  for (const DecisionRow &row : decisionTable())
    sources.push_back(fmt::format("{} = {}", row.word, quote(originOf(std::string(row.word)))));
  std::string out = fmt::format("origin = {{ {} }}\n", fmt::join(sources, ", "));
  if (!kind.empty())
    out += fmt::format("kind = {}\n", quote(kind));
  out += fmt::format("mesh = {}\nschedule = {{ name = {}, microbatches = {}{}{}{} }}\n", axes, quote(schedule),
                     microbatches, chunks > 1 ? fmt::format(", virtual = {}", chunks) : "",
                     placement == Placement::V ? ", placement = \"v\"" : "",
                     scheduleOrigin == "search" ? ", origin = \"search\"" : "");
  if (!order.empty()) {
    out += "order = [\n";
    for (const std::string &text : order)
      out += fmt::format("  {},\n", quote(text));
    out += "]\n";
  }
  for (const DecisionRow &row : decisionTable()) // also what is off: what a file leaves out is open
    if (const std::string line = row.line ? row.line(*this) : ""; !line.empty())
      out += fmt::format("{} = {}\n", row.word, line);
  if (!stages.empty()) {
    out += "stages = [\n";
    for (const auto &stage : stages) {
      std::vector<std::string> quoted;
      for (const std::string &path : stage)
        quoted.push_back(quote(path));
      out += fmt::format("  [{}],\n", fmt::join(quoted, ", "));
    }
    out += "]\n";
  }
  if (!marks.empty()) {
    out += "marks = [\n";
    for (const Mark &mark : marks) {
      std::vector<std::string> quoted;
      for (const std::string &axes : mark.axes)
        quoted.push_back(quote(axes));
      out += fmt::format("  {{ path = {}, axes = [{}], at = {} }},\n", quote(mark.path), fmt::join(quoted, ", "),
                         quote(mark.where));
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
  if (!ops.empty())
    out += "[ops]\n";
  for (const OpRules &rules : ops) {
    std::string entries;
    for (const auto &[label, decision] : rules.ops)
      entries += fmt::format("{} = {}, ", quote(label), quote(decision));
    out += fmt::format("{} = {{ {}origin = {} }}\n", quote(rules.pattern), entries, quote(rules.origin));
  }
  out += "[recompute]\n";
  const Origin usual = originOf("recompute");
  if (std::ranges::find(recompute, RecomputeRule::everyLayer, &RecomputeRule::pattern) == recompute.end())
    out += fmt::format("{} = {}\n", quote(RecomputeRule::everyLayer), quote(text(Recomputation::None)));
  for (const RecomputeRule &rule : recompute)
    out += fmt::format("{} = {}\n", quote(rule.pattern), recomputeText(rule, usual));
  return out;
}

} // namespace cleave::partitioner
