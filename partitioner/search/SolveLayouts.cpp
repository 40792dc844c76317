// Names the ops of equal layers, solves, and keeps of the solution what the walk over the ops would not choose.
#include "partitioner/search/SolveLayouts.h"

#include "partitioner/sharding/Assign.h"
#include "partitioner/sharding/Pinned.h"

#include <algorithm>
#include <map>
#include <set>

namespace cleave::partitioner {
namespace {

class LayoutSolver {
public:
  LayoutSolver(ShardingProblem &problem, const LayoutsToSolve &request)
      : problem(problem), request(request), costs(request.cluster, problem.mesh, request.half, request.single) {
    findKinds();
  }

  SolvedLayouts run() {
    LayoutInput input{.problem = problem, .costs = costs, .microbatches = request.microbatches};
    for (const ProblemOp &op : problem.ops)
      input.ops.push_back(placeOf(op.path, op.path, " " + op.label));
    for (const NamedTensor &named : problem.names)
      input.names.push_back(placeOf(named.name.substr(0, std::min(named.name.rfind('.'), named.name.size())), named.name));
    input.times = times;
    const LayoutProblem layouts(input);
    SolvedLayouts solved{.problem = layouts.assignmentProblem()};
    solved.problem.name = request.name;
    constexpr uint64_t work = 1'000'000'000;
    solved.solution = solveAssignment(solved.problem, {.work = work});
    if (solved.solution.assignment.empty())
      return solved;
    writeRules(layouts.decided(solved.solution.assignment), solved);
    return solved;
  }

private:
  /// Kinds of which the problem has two layers, and the model more.
  void findKinds() {
    std::map<int, std::vector<const ModelLayer *>> byKind;
    for (const ModelLayer &layer : request.layers)
      byKind[layer.kind].push_back(&layer);
    for (const auto &[kind, layers] : byKind) {
      const bool solvedOnce =
          std::ranges::any_of(layers, [](const ModelLayer *layer) { return layer->kept != layer->path; });
      if (!solvedOnce)
        continue;
      int instance = 0;
      for (const ModelLayer *layer : layers)
        if (layer->kept == layer->path)
          places[layer->path] = {static_cast<int>(times.size()), instance++};
      times.push_back(static_cast<int64_t>(layers.size()));
      kinds.push_back(kind);
    }
  }

  LayerPlace placeOf(const std::string &path, const std::string &whole, const std::string &label = "") const {
    const std::string layer = request.layerOf(path);
    const auto found = places.find(layer);
    if (found == places.end())
      return {};
    return {found->second.first, found->second.second, whole.substr(std::min(layer.size(), whole.size())) + label};
  }

  /// The patterns of a path of the problem in the whole model: of every layer that is equal to its own.
  std::vector<std::string> patternsOf(const std::string &path) const {
    const std::string layer = request.layerOf(path);
    const auto found = places.find(layer);
    if (found == places.end())
      return {path};
    const int kind = kinds[static_cast<size_t>(found->second.first)];
    const std::string rest = path.substr(layer.size()), list = layer.substr(0, layer.rfind('.'));
    std::vector<std::string> paths;
    bool all = true;
    for (const ModelLayer &one : request.layers) {
      if (one.kind == kind)
        paths.push_back(one.path + rest);
      else
        all &= !one.path.starts_with(list + ".");
    }
    const bool alike = std::ranges::all_of(paths, [&](const std::string &one) { return one.starts_with(list + "."); });
    return all && alike ? std::vector<std::string>{list + ".*" + rest} : paths;
  }

  void writeRules(DecidedLayouts layouts, SolvedLayouts &solved) {
    std::set<std::string> written;
    for (size_t n = 0; n < problem.names.size(); ++n) {
      if (!layouts.names[n])
        continue;
      problem.names[n].sharding = layouts.names[n];
      ShardRule rule{problem.names[n].name, {}, "search"};
      for (size_t d = 0; d < layouts.names[n]->dims.size(); ++d)
        rule.dims.merge(splitTexts(layouts.names[n]->dims[d], d));
      const std::string &name = problem.names[n].name;
      const size_t dot = std::min(name.rfind('.'), name.size());
      for (const std::string &pattern : patternsOf(name.substr(0, dot)))
        if (rule.pattern = pattern + name.substr(dot); written.insert(rule.pattern).second)
          solved.shard.push_back(rule);
    }
    for (Argument &argument : problem.arguments)
      if (!argument.pinned)
        argument.pinned = problem.names[argument.name].sharding;
    std::vector<bool> expected;
    assign(problem, layouts.ops, &expected);
    std::map<std::string, size_t> rules;
    for (size_t id = 0; id < problem.ops.size(); ++id)
      if (layouts.ops[id] && !expected[id])
        for (const std::string &pattern : patternsOf(problem.ops[id].path)) {
          const auto [found, fresh] = rules.try_emplace(pattern, solved.ops.size());
          if (fresh)
            solved.ops.push_back({pattern, {}, "search"});
          solved.ops[found->second].ops[problem.ops[id].label] = decisionText(*layouts.ops[id]);
        }
  }

  ShardingProblem &problem;
  const LayoutsToSolve &request;
  LayoutCosts costs;
  std::map<std::string, std::pair<int, int>> places; // by path: kind and instance
  std::vector<int64_t> times;                        // by kind
  std::vector<int> kinds;                            // of the model
};

} // namespace

SolvedLayouts solveLayouts(ShardingProblem &problem, const LayoutsToSolve &request) {
  return LayoutSolver(problem, request).run();
}

} // namespace cleave::partitioner
