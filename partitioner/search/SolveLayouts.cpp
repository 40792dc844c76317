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

/// What a solution must cost at most to be of use, beside another one.
WideCost ofUse(double other) {
  constexpr double worthwhile = 0.998;
  return static_cast<WideCost>(worthwhile * other);
}

class LayoutSolver {
public:
  LayoutSolver(ShardingProblem &problem, const LayoutsToSolve &request)
      : problem(problem), request(request), costs(request.places, problem.mesh, request.half, request.single) {
    findKinds();
  }

  /// Sums at the end of an iteration cost nothing as far as the last backward pass hides them. The time to hide is a
  /// limit of their sum, which a multiplier takes into account: the sums count as a part of their time. A small part
  /// comes first; the part grows if the solution has more to sum than can be hidden.
  SolvedLayouts run() {
    LayoutInput input = inputOf();
    SolvedLayouts best;
    DecidedLayouts layouts;
    const ShardingSolution usual = assign(problem);
    LayoutProblem simple(input); // without shared reshards
    for (const double part : parts()) {
      input.exposed = part;
      input.shared.clear();
      simple.exposeSums();
      bool hidden = false, hopeless = false; // for any part of the sums
      for (int round = 0; round < mostRounds; ++round) {
        std::optional<LayoutProblem> shares;
        if (!input.shared.empty())
          shares.emplace(input);
        const LayoutProblem &made = shares ? *shares : simple;
        const LayoutCost walk = made.costOf(usual);
        const Reference other = referenceOf(walk, part);
        best.otherCost = other.all, best.mostCost = static_cast<int64_t>(ofInterest(walk, 0));
        AssignmentSolution solution = solveAssignment(
            made.assignmentProblem(),
            {.stop = request.stops,
             .work = mostWork,
             .tolerance = request.all ? 0 : tolerance,
             .below = request.all ? std::optional<WideCost>() : std::min(ofUse(other.cost), ofInterest(walk, part))});
        throwIfStopped(request.stops);
        if (solution.assignment.empty()) {
          hidden = other.hidden, hopeless = solution.lowerBound >= ofInterest(walk, part);
          break;
        }
        DecidedLayouts found = made.decided(solution.assignment);
        const ShardingSolution compiled = solutionOf(found);
        const LayoutCost cost = made.costOf(compiled);
        const int64_t all = cost.steps + exposed(cost, part);
        const bool proved =
            static_cast<double>(solution.cost - solution.lowerBound) <= tolerance * static_cast<double>(solution.cost);
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
        if (!proved || input.shared.size() == known)
          break; // the solution costs what the problem says
      }
      if (hopeless || (part < 1.0 / 8 && hidden) || (part == 1.0 && !hidden))
        break;
    }
    best.problem.name = request.name;
    if (!best.solution.assignment.empty())
      writeRules(layouts, best);
    return best;
  }

  bool mayBeOfUse() {
    constexpr uint64_t work = 20'000'000;
    LayoutInput input = inputOf();
    const ShardingSolution usual = assign(problem);
    LayoutProblem made(input);
    for (const double part : parts()) {
      input.exposed = part;
      made.exposeSums();
      const LayoutCost walk = made.costOf(usual);
      const Reference other = referenceOf(walk, part);
      const WideCost interest = ofInterest(walk, part), below = std::min(ofUse(other.cost), interest);
      const AssignmentSolution solution =
          solveAssignment(made.assignmentProblem(), {.stop = request.stops, .work = work, .below = below});
      throwIfStopped(request.stops);
      if (solution.lowerBound < below)
        return true;
      if (solution.lowerBound >= interest || other.hidden)
        return false;
      if (part == 1.0)
        break;
    }
    return false;
  }

  LayoutCost costOfDefault() {
    LayoutInput input = inputOf();
    return LayoutProblem(input).costOf(assign(problem));
  }

private:
  LayoutInput inputOf() {
    LayoutInput input{.problem = problem, .costs = costs, .microbatches = request.microbatches};
    for (const ProblemOp &op : problem.ops)
      input.ops.push_back(placeOf(op.path, op.path, " " + op.label));
    for (const NamedTensor &named : problem.names)
      input.names.push_back(
          placeOf(named.name.substr(0, std::min(named.name.rfind('.'), named.name.size())), named.name));
    input.times = times;
    return input;
  }

  /// Of the sums that the problem counts.
  std::vector<double> parts() const { return request.hides ? std::vector{1.0 / 64, 1.0, 1.0 / 3} : std::vector{1.0}; }

  static constexpr uint64_t mostWork = 100'000'000;
  static constexpr double tolerance = 0.005;
  static constexpr int mostRounds = 4; // in which shared reshards become nodes

  /// The better of the default shardings and of rows alone.
  struct Reference {
    int64_t all = 0;     ///< with the sums that nothing hides
    double cost = 0;     ///< with a part of the sums, as in the problem
    bool hidden = false; ///< whether the backward pass hides all sums
  };
  Reference referenceOf(const LayoutCost &usual, double part) const {
    const auto of = [&](const LayoutCost &cost, double sumsPart) {
      const int64_t left = exposed(cost, sumsPart), all = cost.steps + left;
      const double counted = static_cast<double>(cost.steps) + part / sumsPart * static_cast<double>(cost.sums);
      return Reference{all, left == 0 ? static_cast<double>(all) : counted, left == 0};
    };
    const Reference own = of(usual, part);
    if (!request.rowsAlone)
      return own;
    const Reference rows = of(*request.rowsAlone, 1);
    return rows.all < own.all ? rows : own;
  }

  /// What solutions cost at least that are of no interest: these costs have errors, and know of no sums that share a
  /// message, or hide behind others' work. `usual`: tells what a backward pass hides.
  WideCost ofInterest(const LayoutCost &usual, double part) const {
    constexpr double margin = 3;
    const double hidden = request.hides ? static_cast<double>(usual.backward / request.microbatches) : 0;
    return static_cast<WideCost>(std::min(margin * request.interest / LayoutCosts::picosecond + part * hidden, 9e18));
  }

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

LayoutCost defaultCost(ShardingProblem &problem, const LayoutsToSolve &request) {
  return LayoutSolver(problem, request).costOfDefault();
}

bool SolvedLayouts::isOfUse() const {
  return !solution.assignment.empty() && cost <= std::min<WideCost>(ofUse(static_cast<double>(otherCost)), mostCost);
}

bool mayBeOfUse(ShardingProblem &problem, const LayoutsToSolve &request) {
  return LayoutSolver(problem, request).mayBeOfUse();
}

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
