// Collects the sections of `cleave report`.
#include "tools/cleave/ReportData.h"

#include "partitioner/simulate/LinkLoads.h"
#include "partitioner/simulate/Memory.h"
#include "runtime/base/JsonText.h"
#include "runtime/plan/check/Defects.h"
#include "runtime/plan/plan_generated.h"
#include "tools/cleave/Commands.h"
#include "tools/cleave/ReportPage.inc"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <set>

namespace cleave::tool {

using namespace partitioner;
using Json = nlohmann::ordered_json;

namespace {

constexpr size_t loadParts = 100, mostLoadedNodes = 24, mostLoads = 12;

std::string lowerCase(std::string word) {
  for (char &c : word)
    c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return word;
}

Json headOf(const ReportInput &input) {
  const PlanSummary &s = input.summary;
  const Simulation &simulation = input.simulation;
  uint64_t peak = 0, capacity = 0;
  uint32_t rank = 0;
  for (const AlikeRanks &one : simulation.ranks.classes) {
    const DeviceKind &kind = input.cluster.devices[one.kind];
    const uint64_t bytes = neededBytes(*input.plan.programs()->Get(one.program), kind);
    if (bytes > peak)
      peak = bytes, rank = one.representative, capacity = static_cast<uint64_t>(kind.memoryBytes());
  }
  const double perStep = simulation.stepSeconds > 0 ? 1 / simulation.stepSeconds : 0;
  const auto problem = memoryProblem(input.plan, input.cluster);
  Json head{{"model", s.model},
            {"ranks", s.ranks},
            {"mesh", ranksText(s.mesh)},
            {"schedule", s.schedule},
            {"microbatches", s.microbatches},
            {"batch", s.batch},
            {"parameters", s.parameters},
            {"backend", s.backend},
            {"cluster", input.cluster.name},
            {"step_ms", inMs(simulation.stepSeconds)},
            {"samples_per_s", s.batch * perStep},
            {"flops_per_device", simulation.flops / std::max<double>(1, s.ranks) * perStep},
            {"bubble_fraction", simulation.bubbleFraction},
            {"peak_bytes", peak},
            {"peak_rank", rank},
            {"capacity_bytes", capacity},
            {"memory_problem", problem ? Json(*problem) : Json()},
            {"plan_hash", s.hash},
            {"compiler", s.compiler}};
  if (const plan::Training *training = input.plan.training())
    head["precision"] = lowerCase(plan::EnumNamePrecision(training->precision()));
  if (const plan::Choices *choices = input.plan.choices())
    head["choices"] = {{"zero", choices->zero()},
                       {"sequence", choices->sequence()},
                       {"recompute", lowerCase(plan::EnumNameRecomputation(choices->recompute()))}};
  if (const auto &search = s.search)
    head["search"] = {{"step_ms", inMs(search->step)},
                      {"lower_bound_ms", inMs(search->lower)},
                      {"gap", search->gap()},
                      {"floor_ms", inMs(search->least)},
                      {"total", search->total},
                      {"evaluated", search->evaluated},
                      {"by_bound", search->prunedByBound},
                      {"by_memory", search->prunedByMemory},
                      {"refused", search->refused},
                      {"compiled", search->compiled},
                      {"stopped_early", search->stoppedEarly}};
  return head;
}

/// The stages on which the ranks of a program work.
std::vector<uint32_t> stagesOf(const plan::Program &program) {
  std::set<uint32_t> stages;
  for (uint32_t a = 0; a < check::length(program.train()); ++a)
    if (const auto &segment = *program.segments()->Get(program.train()->Get(a)->segment()); segment.stage() >= 0)
      stages.insert(stageOfSegment(program, segment));
  if (stages.empty())
    stages.insert(program.stage());
  return {stages.begin(), stages.end()};
}

Json memoryJson(const MemoryParts &parts) {
  return {{"parameters", parts.parameters},   {"gradients", parts.gradients},     {"optimizer states", parts.states},
          {"activations", parts.activations}, {"inputs", parts.inputs},           {"workspace", parts.workspace},
          {"attention scores", parts.scores}, {"copies and others", parts.others}};
}

Json classesOf(const ReportInput &input) {
  const RankClasses &ranks = input.simulation.ranks;
  std::vector<std::vector<uint32_t>> members(ranks.classes.size());
  for (uint32_t r = 0; r < ranks.classOf.size(); ++r)
    members[ranks.classOf[r]].push_back(r);
  Json all = Json::array();
  for (size_t c = 0; c < ranks.classes.size(); ++c) {
    const AlikeRanks &one = ranks.classes[c];
    const plan::Program &program = *input.plan.programs()->Get(one.program);
    const DeviceKind &kind = input.cluster.devices[one.kind];
    const ClassTimes &times = input.simulation.times[c];
    Json work = Json::array();
    for (size_t w = 0; w < workClassCount; ++w)
      if (times.byWork[w] > 0)
        work.push_back({workClassName(static_cast<WorkClass>(w)), inMs(times.byWork[w])});
    std::string list = numberRanges(members[c]);
    if (list.size() > 200)
      list = list.substr(0, list.rfind(',', 200)) + ", ...";
    all.push_back({{"rank", one.representative},
                   {"ranks", one.ranks},
                   {"members", std::move(list)},
                   {"stages", stagesOf(program)},
                   {"device", kind.name},
                   {"capacity_bytes", static_cast<uint64_t>(kind.memoryBytes())},
                   {"reserved_bytes", reservedBytes(kind)},
                   {"memory", memoryJson(memoryParts(input.plan, program, kind))},
                   {"busy_ms", inMs(times.busy)},
                   {"communication_ms", inMs(times.communication)},
                   {"hidden_ms", inMs(times.hidden)},
                   {"idle_ms", inMs(times.idle)},
                   {"collectives_ms", inMs(times.collectives)},
                   {"messages_ms", inMs(times.messages)},
                   {"work", std::move(work)}});
  }
  return all;
}

std::string linkText(const LinkLoad &load) {
  const LinkEnds &first = load.links.front();
  std::vector<uint32_t> devices;
  for (const LinkEnds &ends : load.links)
    devices.push_back(ends.device);
  const char *way = first.in ? "in" : "out";
  switch (first.kind) {
  case LinkKind::Network:
    return fmt::format("network {}", way);
  case LinkKind::Pcie:
    return fmt::format("PCIe {}, {} {}", way, devices.size() > 1 ? "devices" : "device", numberRanges(devices));
  case LinkKind::Port:
    return fmt::format("port {}, {} {}", way, devices.size() > 1 ? "devices" : "device", numberRanges(devices));
  case LinkKind::Pair:
    break;
  }
  std::vector<std::string> pairs;
  for (size_t i = 0; i < std::min<size_t>(load.links.size(), 6); ++i)
    pairs.push_back(fmt::format("{}\u2192{}", load.links[i].device, load.links[i].other));
  return fmt::format("link {}{}", fmt::join(pairs, " "),
                     load.links.size() > 6 ? fmt::format(" and {} more", load.links.size() - 6) : "");
}

Json nodesOf(const ReportInput &input) {
  Json all = Json::array();
  for (const NodeLoads &node : nodeLoads(input.plan, input.cluster, input.simulation, loadParts, mostLoadedNodes)) {
    std::vector<LinkLoad> busiest = node.links;
    std::stable_sort(busiest.begin(), busiest.end(), [](const auto &a, const auto &b) { return a.mean > b.mean; });
    Json links = Json::array();
    for (size_t i = 0; i < std::min(busiest.size(), mostLoads); ++i) {
      Json byTime = Json::array();
      for (const double load : busiest[i].byTime)
        byTime.push_back(std::lround(100 * load));
      links.push_back({{"name", linkText(busiest[i])}, {"mean", busiest[i].mean}, {"percent", std::move(byTime)}});
    }
    Json devices = Json::array(); // [rank, class]
    for (const uint32_t rank : node.ranks)
      devices.push_back({rank, input.simulation.ranks.classOf[rank]});
    all.push_back({{"nodes", node.nodes.size()},
                   {"first", node.nodes.front()},
                   {"members", numberRanges(node.nodes).substr(0, 200)},
                   {"devices", std::move(devices)},
                   {"omitted_links", busiest.size() - links.size()},
                   {"links", std::move(links)}});
    if (all.size() == mostLoadedNodes)
      break;
  }
  return all;
}

Json communicationOf(const PlanSummary &summary) {
  Json all = Json::array();
  for (const auto &one : summary.collectives)
    all.push_back({one.kind, one.source, one.axis, one.count, one.bytes});
  for (const auto &one : summary.messages)
    all.push_back({"send", fmt::format("stage {} to {}: {}", one.from, one.to, layerPattern(one.source)), "pp",
                   one.count, one.bytes});
  return all;
}

} // namespace

Json reportData(const ReportInput &input, size_t mostEvents) {
  Json stages = Json::array();
  for (const PlanSummary::Stage &stage : input.summary.stages)
    stages.push_back({{"layers", layerRanges(stage.layers)},
                      {"ranks", stage.ranks.size()},
                      {"parameters", stage.parameters},
                      {"flops", stage.flops}});
  Json alternatives = Json::array();
  for (const OtherPlan &one : input.alternatives)
    alternatives.push_back({{"decision", one.decision},
                            {"value", one.value},
                            {"step_ms", one.step > 0 ? Json(one.step * 1e3) : Json(nullptr)},
                            {"peak_bytes", one.peakBytes},
                            {"reason", one.reason}});
  return {{"head", headOf(input)},
          {"stages", std::move(stages)},
          {"classes", classesOf(input)},
          {"timeline", reportTimeline(input, mostEvents)},
          {"nodes", nodesOf(input)},
          {"modules", reportModules(input)},
          {"communication", communicationOf(input.summary)},
          {"alternatives", std::move(alternatives)}};
}

std::string reportPage(const Json &data) {
  std::string json;
  for (const char c : jsonText(data))
    if (c == '<')
      json += "\\u003c";
    else
      json += c;
  std::string page = pageHtml;
  for (const auto &[mark, text] : {std::pair<std::string, std::string>{"/*STYLE*/", pageCss},
                                   {"/*CODE*/", pageJs},
                                   {"/*DATA*/", std::move(json)}}) // last: it may hold the other marks
    page.replace(page.find(mark), mark.size(), text);
  return page;
}

} // namespace cleave::tool
