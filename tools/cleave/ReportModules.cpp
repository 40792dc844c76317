// The modules of `cleave report`: parameters and their splits, stages, computing time and collectives, with repeated
// layers on one line.
#include "runtime/plan/Names.h"
#include "runtime/plan/Text.h"
#include "runtime/plan/check/Defects.h"
#include "runtime/plan/steps/Communication.h"
#include "tools/cleave/Commands.h"
#include "tools/cleave/ReportData.h"

#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <map>
#include <set>

namespace cleave::tool {

using namespace partitioner;
using Json = nlohmann::ordered_json;
using check::length;

uint32_t stageOfSegment(const plan::Program &program, const plan::Segment &segment) {
  return segment.stage() < 0 ? program.stage() : static_cast<uint32_t>(segment.stage());
}

namespace {

/// Modules with the same path except for numbers of layers.
struct ModuleRow {
  struct Parameter {
    uint32_t times = 0;
    int64_t elements = 0;
  };
  struct Moved {
    uint64_t count = 0, bytes = 0;
  };
  std::set<std::string> paths;
  std::set<uint32_t> stages;
  std::map<std::vector<std::string>, Parameter> parameters;         ///< by name, type, shape and split
  std::map<std::pair<std::string, std::string>, Moved> collectives; ///< by kind and axis
  double seconds = 0;                                               ///< of all ranks
};

class ModuleTable {
public:
  explicit ModuleTable(const ReportInput &input) : input(input), plan(input.plan) {
    for (const PlanSummary::Tensor &tensor : input.summary.tensors)
      if (tensor.kind == "parameter")
        addParameter(tensor);
    addSteps();
    addTimes();
  }

  Json json() const {
    double all = 0;
    for (const auto &row : rows)
      all += row.second.seconds;
    Json out = Json::array();
    for (const auto &[pattern, row] : rows) {
      Json parameters = Json::array(), collectives = Json::array();
      for (const auto &[name, one] : row.parameters) {
        parameters.push_back(name);
        parameters.back().push_back(one.times);
        parameters.back().push_back(one.elements);
      }
      for (const auto &[name, moved] : row.collectives)
        collectives.push_back({name.first, name.second, moved.count, moved.bytes});
      out.push_back({{"path", pattern},
                     {"times", row.paths.size()},
                     {"stages", numberRanges({row.stages.begin(), row.stages.end()})},
                     {"share", all > 0 ? row.seconds / all : 0},
                     {"parameters", std::move(parameters)},
                     {"collectives", std::move(collectives)}});
    }
    return out;
  }

private:
  ModuleRow &rowOf(const std::string &path) {
    const std::string pattern = layerPattern(path);
    const auto [found, added] = numbers.try_emplace(pattern, rows.size());
    if (added)
      rows.emplace_back(pattern, ModuleRow{});
    rows[found->second].second.paths.insert(path);
    return rows[found->second].second;
  }

  void addParameter(const PlanSummary::Tensor &tensor) {
    const size_t dot = tensor.name.rfind('.');
    const std::string module = dot == std::string::npos ? "" : tensor.name.substr(0, dot);
    auto &one = rowOf(module).parameters[{dot == std::string::npos ? tensor.name : tensor.name.substr(dot + 1),
                                          tensor.dtype + (tensor.frozen ? ", not trained" : ""),
                                          fmt::format("[{}]", fmt::join(tensor.shape, ", ")), tensor.sharding}];
    ++one.times;
    one.elements += tensor.elements;
  }

  /// The module of a step; of fused ops, whose paths are joined by " + ", the module that has them all.
  std::string moduleOf(uint32_t path) const {
    const std::string all = text(plan.strings()->Get(path));
    std::vector<std::string> common;
    bool first = true;
    for (size_t at = 0; at <= all.size();) {
      const size_t end = std::min(all.find(" + ", at), all.size());
      const std::string part = all.substr(at, end - at);
      at = end + 3;
      if (part.empty() || part == "...") // an op of no module, or the rest
        continue;
      std::vector<std::string> words;
      for (size_t w = 0; w <= part.size();
           w = part.find('.', w) == std::string::npos ? part.size() + 1 : part.find('.', w) + 1)
        words.push_back(part.substr(w, part.find('.', w) - w));
      if (first)
        common = words;
      first = false;
      const auto differs = std::mismatch(common.begin(), common.end(), words.begin(), words.end()).first;
      common.erase(differs, common.end());
    }
    return fmt::format("{}", fmt::join(common, "."));
  }

  /// Stages of all steps, and the collectives of the first rank of each coordinate on axis pp.
  void addSteps() {
    std::set<uint32_t> seen, positions;
    for (const AlikeRanks &one : input.simulation.ranks.classes) {
      const plan::Program &program = *plan.programs()->Get(one.program);
      if (!seen.insert(one.program).second)
        continue;
      const bool counts = positions.insert(program.stage()).second;
      std::map<uint32_t, uint64_t> times; // by segment
      for (uint32_t a = 0; a < length(program.train()); ++a)
        ++times[program.train()->Get(a)->segment()];
      for (const auto &[s, count] : times) {
        const plan::Segment &segment = *program.segments()->Get(s);
        for (uint32_t i = 0; i < length(segment.steps()); ++i) {
          const plan::Step &step = *segment.steps()->Get(i);
          ModuleRow &row = rowOf(moduleOf(step.path()));
          row.stages.insert(stageOfSegment(program, segment));
          if (const auto *collective = step.op_as_Collective(); collective && counts)
            addCollective(row, *collective, one, count);
        }
      }
    }
  }

  void addCollective(ModuleRow &row, const plan::Collective &collective, const AlikeRanks &one, uint64_t count) {
    const plan::Group &group =
        *plan.groups()->Get(plan.ranks()->Get(one.representative)->groups()->Get(collective.group()));
    if (length(group.ranks()) < 2)
      return;
    ModuleRow::Moved &moved = row.collectives[{collectiveName(collective.kind()), text(group.axis())}];
    moved.count += count;
    moved.bytes += count * steps::bytesOf(collective);
  }

  void addTimes() {
    std::map<uint32_t, double> seconds; // by string
    for (size_t c = 0; c < input.simulation.timeline.size(); ++c) {
      const AlikeRanks &one = input.simulation.ranks.classes[c];
      const plan::Program &program = *plan.programs()->Get(one.program);
      for (const StepSpan &span : input.simulation.timeline[c]) {
        const plan::Segment &segment = *program.segments()->Get(program.train()->Get(span.action)->segment());
        const plan::Step &step = *segment.steps()->Get(span.step);
        if (!step.op_as_Collective() && !step.op_as_Send() && !step.op_as_Recv())
          seconds[step.path()] += (span.end - span.begin) * one.ranks;
      }
    }
    for (const auto &[path, spent] : seconds)
      rowOf(moduleOf(path)).seconds += spent;
  }

  const ReportInput &input;
  const plan::Plan &plan;
  std::vector<std::pair<std::string, ModuleRow>> rows; ///< in the order of the plan
  std::map<std::string, size_t> numbers;
};

} // namespace

Json reportModules(const ReportInput &input) { return ModuleTable(input).json(); }

} // namespace cleave::tool
