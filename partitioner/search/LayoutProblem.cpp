// Builds the solver's problem from the ops, and reads its solution.
#include "partitioner/search/LayoutProblem.h"

#include "partitioner/search/LayoutPrices.h"
#include "runtime/base/Error.h"

#include <algorithm>
#include <numeric>
#include <set>
#include <tuple>
#include <unordered_map>

namespace cleave::partitioner {
namespace {

/// More than any layouts cost, for what cannot be; far enough above all costs that the solver tells them apart.
constexpr int64_t impossible = int64_t{1} << 53;

} // namespace

class LayoutBuilder {
public:
  LayoutBuilder(const LayoutInput &input, LayoutProblem &out)
      : input(input), problem(input.problem), out(out), prices(input.problem, input.costs),
        rematerialisable(rematerialisableTensors(problem)), demands(problem.tensors.size()) {}

  void build() {
    out.opNodes.assign(problem.ops.size(), -1);
    out.nameNodes.assign(problem.names.size(), -1);
    for (const ProblemOp &op : problem.ops)
      out.results.push_back(op.results.size());
    findTwins();
    for (OpId id = 0; id < last(); ++id)
      if (isNode(id) && twins[id] < 0)
        addOpNode(id);
    for (OpId id = 0; id < last(); ++id)
      if (isNode(id) && twins[id] >= 0)
        out.opNodes[id] = out.opNodes[twins[id]];
    known.clear();
    for (OpId id = 0; id < last(); ++id)
      if (isNode(id))
        demandOperands(id);
    addNames();
    for (TensorId t = 0; t < static_cast<TensorId>(problem.tensors.size()); ++t)
      joinDemands(t);
    demandResults();
    finish();
  }

  /// How an op runs, without what it delivers.
  OpDecision decision(int node, uint32_t choice) const {
    const auto shardings = [&](const std::vector<ShardingId> &ids) {
      std::vector<Sharding> all;
      for (const ShardingId id : ids)
        all.push_back(prices[id]);
      return all;
    };
    const Way &way = ways[static_cast<size_t>(node)][choice];
    return {{shardings(way.operands), shardings(way.results)}, {}, {}};
  }

  void exposeSums() {
    for (Sum &sum : sums) {
      const int64_t now = exposedSum(sum.cost) * sum.times;
      std::vector<AssignmentNode> &nodes = out.made.nodes;
      int64_t &cost =
          sum.b < 0
              ? nodes[sum.a].costs[sum.choiceA]
              : out.made.edges[edgeOf.at({sum.a, sum.b})].costs[sum.choiceA * nodes[sum.b].costs.size() + sum.choiceB];
      if (cost >= impossible)
        continue;
      cost += now - sum.added;
      sum.added = now;
    }
  }

  /// Goes through all ops and reshards of a solution.
  LayoutCost costOf(const ShardingSolution &solution) {
    LayoutCost cost;
    const auto interned = [&](const std::vector<TensorId> &tensors) {
      std::vector<ShardingId> ids;
      for (const TensorId tensor : tensors)
        ids.push_back(prices.intern(solution.shardingOf(tensor)));
      return ids;
    };
    for (const OpId id : solution.order) {
      if (solution.isReshard(id)) {
        const TensorId from = solution.operandsOf(id)[0], tensor = solution.origin(from, problem);
        const OpId marks = solution.addedOp(id).marks, maker = problem.tensors[tensor].op;
        cost.steps +=
            prices.reshard(prices.intern(solution.shardingOf(from)),
                           prices.intern(solution.shardingOf(solution.resultOf(id))),
                           problem.tensors[tensor].elementBits) *
            (marks == maker || marks == last() ? timesOf(placeOf(tensor)) : timesOf(tensor, placeOf(tensor), marks));
      } else if (!solution.isAdded(id) && id != last() && isNode(id)) {
        const ProblemOp &op = problem.ops[id];
        const int64_t work =
            prices.op(op, interned(solution.operandsOf(id)), interned(op.results)) * timesOf(input.ops[id]);
        cost.steps += work;
        cost.backward += op.backward ? work : 0;
      }
    }
    for (const TensorId tensor : solution.operandsOf(last())) {
      const TensorId origin = solution.origin(tensor, problem);
      Sharding whole = solution.shardingOf(tensor);
      whole.partialAxes.clear();
      cost.sums += exposedSum(prices.reshard(prices.intern(solution.shardingOf(tensor)),
                                             prices.intern(std::move(whole)), problem.tensors[origin].elementBits)) *
                   timesOf(placeOf(origin));
    }
    std::set<NameId> updated;
    for (TensorId a = 0; a < static_cast<TensorId>(problem.arguments.size()); ++a)
      if (const NameId name = problem.arguments[a].name; out.nameNodes[name] >= 0 && updated.insert(name).second)
        cost.steps += prices.update(prices.intern(solution.shardingOf(a)), problem.tensors[a].elementBits) /
                      input.microbatches * timesOf(input.names[name]);
    return cost;
  }

  std::set<TensorInPass> sharedIn(const ShardingSolution &solution, const DecidedLayouts &layouts) const {
    std::map<TensorId, std::set<OpId>> readers; // of the results of reshards
    for (const OpId id : solution.order)
      for (const TensorId operand : solution.operandsOf(id))
        if (operand >= solution.problemTensors)
          readers[operand].insert(id);
    std::set<TensorInPass> found;
    for (const OpId id : solution.order) {
      if (!solution.isReshard(id) || readers[solution.resultOf(id)].size() < 2)
        continue;
      const TensorId tensor = solution.origin(solution.operandsOf(id)[0], problem);
      const OpId maker = problem.tensors[tensor].op;
      if (maker < 0 || !isNode(maker))
        continue;
      const std::vector<TensorId> &results = problem.ops[maker].results;
      const auto result = static_cast<size_t>(std::ranges::find(results, tensor) - results.begin());
      const OpDecision &decision = *layouts.ops[maker];
      const Sharding &to = solution.shardingOf(solution.resultOf(id));
      if (to != decision.delivered[result] && to != decision.backward[result])
        found.insert({tensor, passOf(problem.ops[solution.addedOp(id).marks])});
    }
    return found;
  }

private:
  /// Of the op that makes a tensor, or of the argument.
  const LayerPlace &placeOf(TensorId tensor) const {
    const OpId op = problem.tensors[tensor].op;
    return op < 0 ? input.names[problem.arguments[tensor].name] : input.ops[op];
  }

  struct Way { // a choice of an op
    std::vector<ShardingId> operands, results;
    int64_t cost = 0;
  };
  struct Sum { // at the end of an iteration, of a choice of a node or of a pair of choices
    int a = -1, b = -1;
    size_t choiceA = 0, choiceB = 0;
    int64_t cost = 0, times = 1, added = 0;
  };
  struct Demand { // of an op for a tensor
    int node;
    std::vector<ShardingId> wanted; // by choice of the node; -1: the choice cannot be
    int place;
    OpId user;
    int64_t bits;
  };

  OpId last() const { return static_cast<OpId>(problem.ops.size()) - 1; }
  bool isNode(OpId id) const {
    const ProblemOp &op = problem.ops[id];
    return !op.results.empty() && !rematerialisable[op.results[0]];
  }
  int64_t timesOf(const LayerPlace &place) const {
    return place.kind >= 0 && place.instance > 0 ? input.times[static_cast<size_t>(place.kind)] - 1 : 1;
  }

  // ---- equal layers ------------------------------------------------------------------------------------------------

  void findTwins() {
    twins.assign(problem.ops.size(), -1);
    seconds = twins;
    std::map<std::pair<int, std::string>, OpId> first;
    for (OpId id = 0; id < last(); ++id)
      if (const LayerPlace &place = input.ops[id]; place.kind >= 0 && place.instance == 0)
        first[{place.kind, place.name}] = id;
    for (OpId id = 0; id < last(); ++id)
      if (const LayerPlace &place = input.ops[id]; place.kind >= 0 && place.instance > 0)
        if (const auto found = first.find({place.kind, place.name}); found != first.end() && alike(id, found->second))
          twins[id] = found->second, seconds[found->second] = id;
  }

  const std::vector<OpSharding> &choices(OpId op) {
    const auto [found, fresh] = known.try_emplace(op);
    if (fresh)
      found->second = choicesOf(problem, op);
    return found->second;
  }

  bool alike(OpId a, OpId b) {
    const ProblemOp &one = problem.ops[a], &other = problem.ops[b];
    const auto shapes = [&](const std::vector<TensorId> &x, const std::vector<TensorId> &y) {
      return std::ranges::equal(
          x, y, [&](TensorId s, TensorId t) { return problem.tensors[s].shape == problem.tensors[t].shape; });
    };
    return one.kind == other.kind && one.rule == other.rule && one.backward == other.backward && isNode(b) &&
           shapes(one.operands, other.operands) && shapes(one.results, other.results) && choices(a) == choices(b);
  }

  // ---- nodes -------------------------------------------------------------------------------------------------------

  int addNode(std::vector<int64_t> costs) {
    out.made.nodes.push_back({.costs = std::move(costs)});
    out.stored.emplace_back();
    ways.emplace_back();
    return static_cast<int>(out.made.nodes.size()) - 1;
  }

  void addOpNode(OpId id) {
    const ProblemOp &op = problem.ops[id];
    std::vector<Way> found;
    for (const OpSharding &choice : choices(id)) {
      // A sum stays partial only for an op that passes it on, or for the one reshard of its only user.
      Way way;
      for (const Sharding &operand : choice.operands)
        way.operands.push_back(prices.intern(operand));
      for (const Sharding &result : choice.results)
        way.results.push_back(prices.intern(result));
      way.cost = prices.op(op, way.operands, way.results);
      found.push_back(std::move(way));
    }
    if (found.empty())
      throw userError("the search: an op cannot be run under its mark");
    const int node = addNode(std::vector<int64_t>(found.size()));
    out.opNodes[id] = node;
    ways[node] = std::move(found);
  }

  // ---- operands ----------------------------------------------------------------------------------------------------

  static int passOf(const ProblemOp &op) { return 2 * (op.stage + 1) + op.backward; }

  void demandOperands(OpId id) {
    const ProblemOp &op = problem.ops[id];
    const int node = out.opNodes[id];
    for (size_t c = 0; c < ways[node].size(); ++c)
      out.made.nodes[node].costs[c] += ways[node][c].cost * timesOf(input.ops[id]);
    for (size_t i = 0; i < op.operands.size(); ++i) {
      std::vector<ShardingId> wanted;
      for (const Way &way : ways[node])
        wanted.push_back(way.operands[i]);
      demand(op.operands[i], node, id, wanted, passOf(op));
    }
  }

  /// Of a tensor that is rematerialised, the tensors that it is computed from.
  void demand(TensorId tensor, int node, OpId user, const std::vector<ShardingId> &wanted, int place) {
    const ProblemOp *maker = problem.makerOf(tensor);
    if (!maker || !rematerialisable[tensor]) {
      demands[tensor].push_back({node, wanted, place, user, problem.tensors[tensor].elementBits});
      return;
    }
    for (size_t c = 0; c < wanted.size(); ++c)
      if (wanted[c] >= 0 && !prices[wanted[c]].partialAxes.empty())
        forbid(node, c);
    if (maker->kind == OpKind::Free)
      return;
    std::vector<ShardingId> source = wanted;
    if (maker->kind == OpKind::Broadcast)
      for (ShardingId &one : source)
        if (one >= 0 && prices[one].partialAxes.empty())
          one = prices.intern(broadcastOperand(problem.rules[maker->rule], prices[one]));
        else
          one = -1;
    for (const TensorId operand : maker->operands)
      demand(operand, node, user, source, passOf(*maker));
  }

  void forbid(int node, size_t choice) { out.made.nodes[node].costs[choice] = impossible; }

  // ---- parameters --------------------------------------------------------------------------------------------------

  void addNames() {
    std::map<std::pair<int, std::string>, int> nodes;
    std::vector<std::set<ShardingId>> wanted(problem.names.size());
    std::vector<TensorId> tensors(problem.names.size(), -1);
    for (TensorId a = 0; a < static_cast<TensorId>(problem.arguments.size()); ++a) {
      const Argument &argument = problem.arguments[a];
      if (argument.pinned)
        continue;
      tensors[argument.name] = a;
      wanted[argument.name].insert(prices.intern(Sharding::replicated(problem.tensors[a].shape)));
      for (const Demand &demand : demands[a])
        for (const ShardingId one : demand.wanted)
          if (one >= 0 && prices[one].partialAxes.empty())
            wanted[argument.name].insert(one);
    }
    for (size_t n = 0; n < problem.names.size(); ++n) {
      if (tensors[n] < 0)
        continue;
      const LayerPlace &place = input.names[n];
      int node = -1;
      if (place.kind >= 0) {
        const auto [found, fresh] = nodes.try_emplace({place.kind, place.name}, -1);
        if (!fresh)
          node = found->second;
        else
          found->second = node = static_cast<int>(out.made.nodes.size());
      }
      if (node < 0 || node == static_cast<int>(out.made.nodes.size())) {
        node = addNode(std::vector<int64_t>(wanted[n].size()));
        for (const ShardingId one : wanted[n]) {
          out.stored[node].push_back(prices[one]);
          ways[node].push_back({.results = {one}});
        }
      }
      out.nameNodes[n] = node;
      for (size_t c = 0; c < ways[node].size(); ++c)
        out.made.nodes[node].costs[c] +=
            prices.update(ways[node][c].results[0], problem.tensors[tensors[n]].elementBits) / input.microbatches *
            timesOf(place);
    }
  }

  // ---- reshards ----------------------------------------------------------------------------------------------------

  /// Where a tensor comes from: a node, with the sharding of each choice; or one sharding.
  struct Source {
    int node = -1;
    std::vector<ShardingId> has;
    const LayerPlace *place = nullptr;
  };

  Source sourceOf(TensorId tensor) {
    Source source{.place = &placeOf(tensor)};
    const auto fromWays = [&](int node, size_t result) {
      source.node = node;
      for (const Way &way : ways[node])
        source.has.push_back(way.results[result]);
    };
    if (const OpId op = problem.tensors[tensor].op; op >= 0) {
      const std::vector<TensorId> &results = problem.ops[op].results;
      fromWays(out.opNodes[op], static_cast<size_t>(std::ranges::find(results, tensor) - results.begin()));
    } else if (const Argument &argument = problem.arguments[tensor]; argument.pinned) {
      source.has.push_back(prices.intern(*argument.pinned));
    } else {
      fromWays(out.nameNodes[argument.name], 0);
    }
    return source;
  }

  /// How often the whole model has a reshard that this problem has once.
  int64_t timesOf(TensorId tensor, const LayerPlace &from, OpId user) const {
    const LayerPlace &to = input.ops[user];
    if (from.kind >= 0 && from.kind == to.kind)
      return input.times[static_cast<size_t>(to.kind)] - 1 > 0 && (from.instance || to.instance)
                 ? input.times[static_cast<size_t>(to.kind)] - 1
                 : 1;
    // A tensor from outside that both layers read is read by all.
    const bool shared = to.kind >= 0 && std::ranges::any_of(demands[tensor], [&](const Demand &demand) {
                          const LayerPlace &other = input.ops[demand.user];
                          return other.kind == to.kind && other.instance != to.instance;
                        });
    return shared ? timesOf(to) : 1;
  }

  int64_t move(ShardingId from, ShardingId to, int64_t bits, bool fixed) {
    if (to < 0 || from == to)
      return 0;
    const Sharding &has = prices[from], &wants = prices[to];
    const bool sums = wants.partialAxes.empty() || has.partialKind == wants.partialKind;
    if (fixed || !sums || !std::ranges::includes(has.partialAxes, wants.partialAxes))
      return impossible;
    return prices.reshard(from, to, bits);
  }

  void joinDemands(TensorId tensor) {
    if (demands[tensor].empty())
      return;
    Source source = sourceOf(tensor);
    std::map<int, std::vector<const Demand *>> places;
    for (const Demand &demand : demands[tensor])
      places[demand.place].push_back(&demand);
    const bool fixed = problem.tensors[tensor].fixed;
    const OpId maker = problem.tensors[tensor].op;
    if (maker < 0 || fixed) {
      for (const auto &[place, all] : places)
        joinShared(tensor, source, all);
      return;
    }
    const int own = passOf(problem.ops[maker]);
    if (any(tensor, [&](TensorId one) { return deliversOften(one); }))
      source = delivered(tensor, source);
    for (const auto &[place, all] : places)
      if (isShared(tensor, place))
        joinShared(tensor, source, all);
      else if (place == own || !any(tensor, [&, at = place](TensorId one) { return countNodes(usersAt(one, at)) > 1; }))
        joinEach(tensor, source, all);
      else
        joinEach(tensor, readBy(tensor, source, all, place), all);
    sources[tensor] = source;
  }

  /// The tensor and the equal one of an equal layer.
  std::vector<TensorId> equals(TensorId tensor) const {
    const OpId op = problem.tensors[tensor].op, other = twins[op] >= 0 ? twins[op] : seconds[op];
    if (other < 0)
      return {tensor};
    const std::vector<TensorId> &results = problem.ops[op].results;
    return {tensor,
            problem.ops[other].results[static_cast<size_t>(std::ranges::find(results, tensor) - results.begin())]};
  }
  template <typename Holds> bool any(TensorId tensor, Holds holds) const {
    return std::ranges::any_of(equals(tensor), holds);
  }

  std::vector<const Demand *> usersAt(TensorId tensor, int place) const {
    std::vector<const Demand *> users;
    for (const Demand &demand : demands[tensor])
      if (demand.place == place)
        users.push_back(&demand);
    return users;
  }

  static size_t countNodes(const std::vector<const Demand *> &all) {
    std::set<int> nodes;
    for (const Demand *demand : all)
      nodes.insert(demand->node);
    return nodes.size();
  }

  /// Whether a result needs a node for the sharding under which it is delivered: a sum or a reshard may be shared.
  bool deliversOften(TensorId tensor) const {
    const OpId op = problem.tensors[tensor].op;
    if (countNodes(usersAt(tensor, passOf(problem.ops[op]))) > 1)
      return true;
    if (problem.tensors[tensor].uses.size() < 2)
      return false;
    const std::vector<TensorId> &results = problem.ops[op].results;
    const auto result = static_cast<size_t>(std::ranges::find(results, tensor) - results.begin());
    return std::ranges::any_of(ways[out.opNodes[op]],
                               [&](const Way &way) { return !prices[way.results[result]].partialAxes.empty(); });
  }

  /// A node that makes one tensor of another, with the costs of each of the equal layers.
  Source between(TensorId tensor, const Source &source, const std::set<ShardingId> &choices, int64_t times,
                 std::map<TensorId, int> &nodes) {
    Source made{.node = -1, .has = {choices.begin(), choices.end()}, .place = source.place};
    for (const TensorId one : equals(tensor))
      if (const auto found = nodes.find(one); found != nodes.end())
        made.node = found->second;
    if (made.node < 0) {
      made.node = addNode(std::vector<int64_t>(choices.size()));
      for (const ShardingId one : choices)
        ways[made.node].push_back({.results = {one}});
    }
    nodes[tensor] = made.node;
    const int64_t bits = problem.tensors[tensor].elementBits;
    for (size_t c = 0; c < source.has.size(); ++c)
      for (size_t m = 0; m < made.has.size(); ++m)
        if (const int64_t cost = move(source.has[c], made.has[m], bits, false))
          addCost(source.node, c, made.node, m, cost >= impossible ? impossible : cost * times);
    return made;
  }

  void addWanted(TensorId tensor, int place, std::set<ShardingId> &choices) const {
    for (const TensorId one : equals(tensor))
      for (const Demand *demand : usersAt(one, place))
        for (const ShardingId wanted : demand->wanted)
          if (wanted >= 0 && prices[wanted].partialAxes.empty())
            choices.insert(wanted);
  }

  /// The shardings under which the maker of a tensor delivers it to all users: as it makes it, if that is whole; its
  /// sum; or what the users in the same pass want.
  Source delivered(TensorId tensor, const Source &source) {
    std::set<ShardingId> choices;
    for (const ShardingId has : source.has) {
      Sharding whole = prices[has];
      whole.partialAxes.clear();
      choices.insert(prices.intern(std::move(whole)));
    }
    addWanted(tensor, passOf(problem.ops[problem.tensors[tensor].op]), choices);
    return between(tensor, source, choices, timesOf(*source.place), deliveryNodes);
  }

  /// The shardings under which the users in the backward pass read a tensor of the forward pass.
  Source readBy(TensorId tensor, const Source &source, const std::vector<const Demand *> &users, int place) {
    std::set<ShardingId> choices;
    for (const ShardingId has : source.has)
      if (prices[has].partialAxes.empty())
        choices.insert(has);
    addWanted(tensor, place, choices);
    int64_t times = 1;
    for (const Demand *demand : users)
      times = std::max(times, timesOf(tensor, *source.place, demand->user));
    return between(tensor, source, choices, times, readingNodes);
  }

  void joinEach(TensorId tensor, const Source &source, const std::vector<const Demand *> &all) {
    for (size_t i = 0; i < all.size(); ++i) {
      const Demand &demand = *all[i];
      const int64_t times = timesOf(tensor, *source.place, demand.user);
      for (size_t u = 0; u < demand.wanted.size(); ++u) {
        const bool again = std::any_of(all.begin(), all.begin() + static_cast<ptrdiff_t>(i), [&](const Demand *before) {
          return before->user == demand.user && before->wanted[u] == demand.wanted[u];
        });
        for (size_t c = 0; c < source.has.size() && !again; ++c)
          if (const int64_t cost = move(source.has[c], demand.wanted[u], demand.bits, problem.tensors[tensor].fixed))
            addCost(source.node, c, demand.node, u, cost >= impossible ? impossible : cost * times);
      }
    }
  }

  bool isShared(TensorId tensor, int pass) const {
    return any(tensor, [&](TensorId one) { return input.shared.contains({one, pass}); });
  }

  /// A reshard that several ops want is a node, made or not.
  void joinShared(TensorId tensor, const Source &source, const std::vector<const Demand *> &all) {
    if (countNodes(all) < 2)
      return joinEach(tensor, source, all);
    const bool fixed = problem.tensors[tensor].fixed;
    std::map<ShardingId, std::set<int>> wanting; // nodes by what they may want
    for (const Demand *demand : all)
      for (const ShardingId one : demand->wanted)
        if (one >= 0)
          wanting[one].insert(demand->node);
    std::map<ShardingId, int> shared;
    for (const auto &[wanted, nodes] : wanting) {
      std::vector<int64_t> costs;
      for (const ShardingId has : source.has)
        costs.push_back(move(has, wanted, all[0]->bits, fixed));
      if (nodes.size() < 2 || std::ranges::none_of(costs, [](int64_t cost) { return cost && cost < impossible; }))
        continue;
      const int node = shared[wanted] = addNode({0, 0}); // not made, made
      int64_t times = 1;
      for (const Demand *demand : all)
        times = std::max(times, timesOf(tensor, *source.place, demand->user));
      for (size_t c = 0; c < costs.size(); ++c)
        if (costs[c] < impossible)
          addCost(source.node, c, node, 1, costs[c] * times);
    }
    for (const Demand *demand : all) {
      const int64_t times = timesOf(tensor, *source.place, demand->user);
      for (size_t u = 0; u < demand->wanted.size(); ++u) {
        const auto sharing = shared.find(demand->wanted[u]);
        if (sharing != shared.end())
          addCost(sharing->second, 0, demand->node, u, impossible);
        for (size_t c = 0; c < source.has.size(); ++c)
          if (const int64_t cost = move(source.has[c], demand->wanted[u], demand->bits, fixed); cost >= impossible)
            addCost(source.node, c, demand->node, u, impossible);
          else if (cost && sharing == shared.end())
            addCost(source.node, c, demand->node, u, cost * times);
      }
    }
  }

  void addCost(int a, size_t choiceA, int b, size_t choiceB, int64_t cost) {
    if (a < 0) {
      out.made.nodes[b].costs[choiceB] += cost;
      return;
    }
    if (a == b) {
      if (choiceA == choiceB)
        out.made.nodes[a].costs[choiceA] += cost;
      return;
    }
    if (a > b)
      std::swap(a, b), std::swap(choiceA, choiceB);
    std::vector<int64_t> &costs = edges[{a, b}];
    const size_t width = out.made.nodes[b].costs.size();
    costs.resize(out.made.nodes[a].costs.size() * width);
    costs[choiceA * width + choiceB] += cost;
  }

  // ---- results -----------------------------------------------------------------------------------------------------

  void demandResults() {
    for (size_t i = 0; i < problem.results.size(); ++i) {
      const Result &result = problem.results[i];
      const TensorId tensor = problem.ops.back().operands[i];
      if (rematerialisable[tensor])
        continue;
      const auto delivered = sources.find(tensor);
      const Source source = delivered != sources.end() ? delivered->second : sourceOf(tensor);
      const int64_t times = timesOf(*source.place), bits = problem.tensors[tensor].elementBits;
      const size_t rank = problem.tensors[tensor].shape.size();
      const int name = result.follows < 0 ? -1 : out.nameNodes[result.follows];
      std::vector<ShardingId> stored;
      if (name >= 0)
        for (const Way &way : ways[name])
          stored.push_back(way.results[0]);
      else if (result.follows >= 0 && problem.names[result.follows].sharding)
        stored.push_back(prices.intern(*problem.names[result.follows].sharding));
      if (stored.empty() || prices[stored[0]].dims.size() != rank)
        stored = {prices.intern(Sharding::replicated(problem.tensors[tensor].shape))};
      for (size_t p = 0; p < stored.size(); ++p)
        for (size_t c = 0; c < source.has.size(); ++c) {
          const auto [cost, sum] = costOfResult(result, source.has[c], stored[p], bits);
          if (stored.size() == 1 && source.node < 0)
            continue;
          if (stored.size() > 1)
            addCost(source.node, c, name, p, cost * times);
          else
            out.made.nodes[source.node].costs[c] += cost * times;
          if (sum > 0 && cost < impossible)
            addSum(source.node, c, stored.size() > 1 ? name : -1, p, sum, times);
        }
    }
  }

  void addSum(int a, size_t choiceA, int b, size_t choiceB, int64_t cost, int64_t times) {
    if (a == b && choiceA != choiceB)
      return;
    if (a == b)
      b = -1;
    if (a < 0 || (b >= 0 && a > b))
      std::swap(a, b), std::swap(choiceA, choiceB);
    sums.push_back({a, b, choiceA, choiceB, cost, times});
    if (b >= 0)
      edgeOf[{a, b}] = 0, edges[{a, b}].resize(out.made.nodes[a].costs.size() * out.made.nodes[b].costs.size());
  }

  /// Of a microbatch, and of the sum at the end of an iteration of a result that may stay partial.
  std::pair<int64_t, int64_t> costOfResult(const Result &result, ShardingId has, ShardingId stored, int64_t bits) {
    Sharding required = prices[stored];
    if (result.mayBePartial)
      for (const std::string &axis : prices[has].partialAxes)
        if (!required.splitsOver(axis))
          required.partialAxes.push_back(axis), required.partialKind = prices[has].partialKind;
    const ShardingId between = prices.intern(std::move(required));
    return {prices.reshard(has, between, bits), prices.reshard(between, stored, bits)};
  }

  /// The part of a sum at the end of an iteration that a microbatch bears.
  int64_t exposedSum(int64_t cost) const {
    return static_cast<int64_t>(input.exposed * static_cast<double>(cost)) / input.microbatches;
  }

  void finish() {
    for (OpId id = 0; id < last(); ++id)
      for (const TensorId result : problem.ops[id].results)
        out.between.push_back(betweenOf(result));
    for (AssignmentNode &node : out.made.nodes)
      for (int64_t &cost : node.costs)
        cost = std::min(cost, impossible);
    for (auto &[nodes, costs] : edges) {
      for (int64_t &cost : costs)
        cost = std::min(cost, impossible);
      const auto summed = edgeOf.find(nodes);
      if (summed != edgeOf.end())
        summed->second = out.made.edges.size();
      if (summed != edgeOf.end() || std::ranges::any_of(costs, [](int64_t cost) { return cost != 0; }))
        out.made.edges.push_back({{static_cast<uint32_t>(nodes.first), static_cast<uint32_t>(nodes.second)}, costs});
    }
    edges.clear();
    exposeSums();
  }

  LayoutProblem::Between betweenOf(TensorId tensor) {
    LayoutProblem::Between found;
    const auto read = [&](const std::map<TensorId, int> &nodes, int &node) {
      if (const auto entry = nodes.find(tensor); entry != nodes.end()) {
        node = entry->second;
        for (const Way &way : ways[node])
          if (out.stored[node].size() < ways[node].size())
            out.stored[node].push_back(prices[way.results[0]]);
      }
    };
    read(deliveryNodes, found.delivered), read(readingNodes, found.read);
    return found;
  }

  const LayoutInput &input;
  const ShardingProblem &problem;
  LayoutProblem &out;
  LayoutPrices prices;
  const std::vector<bool> rematerialisable;
  std::map<OpId, std::vector<OpSharding>> known; // choices
  std::vector<OpId> twins, seconds;              // by op of a second layer: the op of the first one, and the reverse
  std::vector<std::vector<Way>> ways;            // by node
  std::vector<std::vector<Demand>> demands;      // by tensor
  std::map<std::pair<int, int>, std::vector<int64_t>> edges;
  std::map<std::pair<int, int>, size_t> edgeOf; // that has sums: its number
  std::vector<Sum> sums;
  std::map<TensorId, Source> sources;                  // with the sharding that is delivered
  std::map<TensorId, int> deliveryNodes, readingNodes; // by tensor
};

LayoutProblem::LayoutProblem(const LayoutInput &input) : builder(std::make_unique<LayoutBuilder>(input, *this)) {
  builder->build();
}

LayoutProblem::~LayoutProblem() = default;

void LayoutProblem::exposeSums() { builder->exposeSums(); }

std::set<TensorInPass> LayoutProblem::sharedIn(const ShardingSolution &solution, const DecidedLayouts &layouts) const {
  return builder->sharedIn(solution, layouts);
}

LayoutCost LayoutProblem::costOf(const ShardingSolution &solution) const { return builder->costOf(solution); }

DecidedLayouts LayoutProblem::decided(const std::vector<uint32_t> &assignment) const {
  DecidedLayouts layouts;
  size_t tensor = 0;
  for (size_t id = 0; id < opNodes.size(); ++id) {
    const int node = opNodes[id];
    layouts.ops.push_back(node < 0 ? std::nullopt : std::optional(builder->decision(node, assignment[node])));
    for (size_t r = 0; r < results[id]; ++r, ++tensor) {
      if (node < 0)
        continue;
      OpDecision &decision = *layouts.ops.back();
      const Between &after = between[tensor];
      decision.delivered.push_back(after.delivered < 0 ? decision.sharding.results[r]
                                                       : stored[after.delivered][assignment[after.delivered]]);
      decision.backward.emplace_back();
      if (after.read >= 0 && stored[after.read][assignment[after.read]] != decision.delivered.back())
        decision.backward.back() = stored[after.read][assignment[after.read]];
    }
  }
  for (const int node : nameNodes)
    layouts.names.push_back(node < 0 ? std::nullopt : std::optional(stored[node][assignment[node]]));
  return layouts;
}

} // namespace cleave::partitioner
