// Names the ops of equal layers, solves, and keeps of the solution what the walk over the ops would not choose.
#include "partitioner/search/SolveLayouts.h"

#include "partitioner/sharding/Assign.h"
#include "partitioner/sharding/Pinned.h"
#include "partitioner/solver/ReadProblem.h"
#include "runtime/base/AtomicFile.h"

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

  /// Sums at the end of an iteration cost nothing as far as the last backward pass hides them. The time to hide is a
  /// limit of their sum, which a multiplier takes into account: the sums count as a part of their time. A small part
  /// comes first; the part grows if the solution has more to sum than can be hidden.
  SolvedLayouts run() {
    LayoutInput input{.problem = problem, .costs = costs, .microbatches = request.microbatches};
    for (const ProblemOp &op : problem.ops)
      input.ops.push_back(placeOf(op.path, op.path, " " + op.label));
    for (const NamedTensor &named : problem.names)
      input.names.push_back(
          placeOf(named.name.substr(0, std::min(named.name.rfind('.'), named.name.size())), named.name));
    input.times = times;
    SolvedLayouts best;
    DecidedLayouts layouts;
    const ShardingSolution usual = assign(problem);
    const std::vector<double> parts = request.hides ? std::vector{1.0 / 16, 1.0, 1.0 / 3} : std::vector{1.0};
    for (const double part : parts) {
      input.exposed = part;
      input.shared.clear();
      bool hidden = false;
      for (int round = 0; round < mostRounds; ++round) {
        LayoutProblem made(input);
        const LayoutCost walk = made.costOf(usual);
        best.defaultCost = walk.steps + exposed(walk, part);
        AssignmentSolution solution =
            solveAssignment(made.assignmentProblem(), {.stop = request.stops, .work = mostWork});
        throwIfStopped(request.stops);
        if (solution.assignment.empty())
          return best;
        DecidedLayouts found = made.decided(solution.assignment);
        const ShardingSolution compiled = solutionOf(found);
        const LayoutCost cost = made.costOf(compiled);
        const int64_t all = cost.steps + exposed(cost, part);
        const bool proved = solution.optimal();
        const std::set<TensorInPass> shared =
            proved && cost.all() < solution.cost ? made.sharedIn(compiled, found) : std::set<TensorInPass>();
        if (best.solution.assignment.empty() || all <= best.cost) {
          best.cost = all;
          best.problem = made.assignmentProblem();
          best.solution = std::move(solution);
          layouts = std::move(found);
        }
        hidden = exposed(cost, part) == 0;
        const size_t known = input.shared.size();
        input.shared.insert(shared.begin(), shared.end());
        if (input.shared.size() == known)
          break; // the solution costs what the problem says
      }
      if (!best.solution.optimal() || (part < 1.0 / 8 && hidden) || (part == 1.0 && !hidden))
        break;
    }
    best.problem.name = request.name;
    writeRules(layouts, best);
    return best;
  }

private:
  static constexpr uint64_t mostWork = 200'000'000;
  static constexpr int mostRounds = 4; // in which shared reshards become nodes

  /// What is left of the sums in a microbatch's time when one backward pass of all has hidden what it can.
  int64_t exposed(const LayoutCost &cost, double part) const {
    const int64_t sums = static_cast<int64_t>(static_cast<double>(cost.sums) / part);
    return request.hides ? std::max<int64_t>(0, sums - cost.backward / request.microbatches) : sums;
  }

  ShardingSolution solutionOf(const DecidedLayouts &layouts) {
    const std::vector<NamedTensor> names = problem.names;
    const std::vector<Argument> arguments = problem.arguments;
    pin(layouts);
    ShardingSolution solution = assign(problem, layouts.ops);
    problem.names = names, problem.arguments = arguments;
    return solution;
  }

  void pin(const DecidedLayouts &layouts) {
    for (size_t n = 0; n < problem.names.size(); ++n)
      if (layouts.names[n])
        problem.names[n].sharding = layouts.names[n];
    for (Argument &argument : problem.arguments)
      if (!argument.pinned)
        argument.pinned = problem.names[argument.name].sharding;
  }

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
    if (found == places.end() || !path.starts_with(layer)) // the loss belongs to the last layer for its costs alone
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

  void writeRules(const DecidedLayouts &layouts, SolvedLayouts &solved) {
    std::set<std::string> written;
    for (size_t n = 0; n < problem.names.size(); ++n) {
      if (!layouts.names[n])
        continue;
      ShardRule rule{problem.names[n].name, {}, "search"};
      for (size_t d = 0; d < layouts.names[n]->dims.size(); ++d)
        rule.dims.merge(splitTexts(layouts.names[n]->dims[d], d));
      const std::string &name = problem.names[n].name;
      const size_t dot = std::min(name.rfind('.'), name.size());
      for (const std::string &pattern : patternsOf(name.substr(0, dot)))
        if (rule.pattern = pattern + name.substr(dot); written.insert(rule.pattern).second)
          solved.shard.push_back(rule);
    }
    pin(layouts);
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

void writeProblem(const SolvedLayouts &layouts, const std::string &folder) {
  makeFolders(folder, "--dump-problems");
  const auto write = [&](const std::string &ending, const std::string &text) {
    AtomicFile out(folder + "/" + layouts.problem.name + ending);
    out.write(text.data(), text.size());
    out.commit();
  };
  write(".json", problemText(layouts.problem));
  write(".solution.json", solutionText(layouts.solution, 0));
}

} // namespace cleave::partitioner
