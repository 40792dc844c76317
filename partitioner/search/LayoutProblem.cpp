// Builds the solver's problem from the ops, and reads its solution.
#include "partitioner/search/LayoutProblem.h"

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

bool isViewOp(OpKind kind) {
  return kind == OpKind::Reshape || kind == OpKind::Broadcast || kind == OpKind::Transpose || kind == OpKind::Slice ||
         kind == OpKind::Mark || kind == OpKind::Free || kind == OpKind::Return;
}

bool staysInRegisters(OpKind kind) { return isElementwise(kind) || isViewOp(kind); }

} // namespace

/// Prices ops and reshards by the indices of their shardings.
class LayoutPrices {
public:
  explicit LayoutPrices(const LayoutInput &input) : input(input), problem(input.problem), moved(problem.tensors.size()) {
    for (TensorId t = 0; t < static_cast<TensorId>(problem.tensors.size()); ++t)
      moved[t] = isMoved(t);
  }

  ShardingId intern(Sharding sharding) {
    if (sharding.partialAxes.empty())
      sharding.partialKind = PartialKind::Sum;
    const ShardingId id = table.add(std::move(sharding));
    while (elements.size() < table.size()) {
      int64_t count = 1;
      for (int64_t size : table[static_cast<ShardingId>(elements.size())].localShape(problem.mesh, origin()))
        count *= size;
      elements.push_back(count);
    }
    return id;
  }
  const Sharding &operator[](ShardingId id) const { return table[id]; }

  /// Of the messages from one sharding to another. An op cannot read a partial value as whole, nor the reverse.
  int64_t reshard(ShardingId from, ShardingId to, int64_t bits) {
    if (from == to)
      return 0;
    const auto [found, fresh] = reshards.try_emplace(std::tuple(from, to, bits), 0);
    if (fresh)
      for (const Message &message : messagesOf(problem.mesh, table[from], table[to], bits))
        found->second += input.costs.message(message);
    return found->second;
  }

  int64_t op(const ProblemOp &op, const std::vector<ShardingId> &operands, const std::vector<ShardingId> &results) {
    if (isViewOp(op.kind))
      return 0;
    StepWork work;
    work.kernels = 0;
    for (size_t i = 0; i < op.operands.size(); ++i)
      work.bytes += op.flops > 0 || moved[op.operands[i]] ? bytesOf(op.operands[i], operands[i]) : 0;
    for (size_t r = 0; r < op.results.size(); ++r)
      work.bytes += op.flops > 0 || moved[op.results[r]] ? bytesOf(op.results[r], results[r]) : 0;
    work.kind = WorkClass::Stream;
    if (op.flops > 0)
      describeProduct(op, operands, results, work);
    return input.costs.work(work, problem.tensors[op.operands[0]].elementBits);
  }

  /// Of a rank's part of a parameter in the optimizer: the parameter, two states, all read and written, and the gradient.
  int64_t update(ShardingId stored, int64_t bits) {
    StepWork work;
    work.kind = WorkClass::Stream;
    work.kernels = 0;
    work.bytes = 7 * static_cast<double>(elements[stored]) * static_cast<double>(std::max<int64_t>(bits / 8, 1));
    return input.costs.work(work, bits) / input.microbatches;
  }

private:
  std::vector<int64_t> origin() const { return std::vector<int64_t>(problem.mesh.axes.size()); }

  /// Whether a tensor is written to memory: kernels keep what only elementwise ops of one pass share.
  bool isMoved(TensorId tensor) const {
    const ProblemOp *maker = problem.makerOf(tensor);
    if (!maker || !staysInRegisters(maker->kind))
      return true;
    if (maker->kind == OpKind::Free || maker->kind == OpKind::Broadcast)
      return false;
    return std::ranges::any_of(problem.tensors[tensor].uses, [&](const Use &use) {
      const ProblemOp &user = problem.ops[use.op];
      return !isElementwise(user.kind) || user.backward != maker->backward;
    });
  }

  double bytesOf(TensorId tensor, ShardingId sharding) const {
    return static_cast<double>(elements[sharding]) *
           static_cast<double>(std::max<int64_t>(problem.tensors[tensor].elementBits / 8, 1));
  }

  void describeProduct(const ProblemOp &op, const std::vector<ShardingId> &operands,
                       const std::vector<ShardingId> &results, StepWork &work) const {
    // The share of the operations: of every loop, the share of a dimension that it runs along.
    double share = 1;
    const OpRule &rule = problem.rules[op.rule];
    for (int l = 0; l < static_cast<int>(rule.loops.size()); ++l)
      share *= shareOfLoop(rule, l, op, operands, results);
    work.flops = op.flops * share;
    const std::vector<int64_t> result = table[results[0]].localShape(problem.mesh, origin());
    const size_t rank = result.size();
    work.backward = op.backward;
    if (op.attention) { // [batch, heads, rows, width]
      const std::vector<int64_t> q = table[operands[0]].localShape(problem.mesh, origin());
      work.kind = WorkClass::Attention;
      work.batch = q[0] * q[1], work.m = work.n = q[2], work.k = q[3];
      work.scoreBytes = static_cast<double>(work.batch * work.m * work.n) *
                        static_cast<double>(problem.tensors[op.operands[0]].elementBits / 8);
      return;
    }
    work.kind = WorkClass::Product;
    work.n = result.back();
    const bool convolution = std::ranges::find(rule.loops, LoopKind::Whole) != rule.loops.end(),
               batched = rank > 2 && problem.tensors[op.operands[1]].shape.size() > 2 && !convolution;
    if (convolution) // [samples, ...]: the largest dimension stands for the channels
      work.n = *std::max_element(result.begin() + 1, result.end());
    work.m = batched ? result[rank - 2] : elements[results[0]] / std::max<int64_t>(work.n, 1);
    work.batch = std::max<int64_t>(elements[results[0]] / std::max<int64_t>(work.m * work.n, 1), 1);
    work.k = std::max<int64_t>(
        static_cast<int64_t>(work.flops / 2 / static_cast<double>(std::max<int64_t>(work.m * work.n * work.batch, 1))),
        1);
  }

  double shareOfLoop(const OpRule &rule, int loop, const ProblemOp &op, const std::vector<ShardingId> &operands,
                     const std::vector<ShardingId> &results) const {
    const auto share = [&](const std::vector<std::vector<RuleDim>> &side, const std::vector<TensorId> &tensors,
                           const std::vector<ShardingId> &shardings) {
      for (size_t i = 0; i < side.size(); ++i)
        if (const size_t d = dimOf(side[i], loop); d < side[i].size()) {
          double part = 1;
          for (const Factor &factor : table[shardings[i]].dims[d].factors)
            part *= static_cast<double>(shareSize(factor.size, problem.mesh.size(factor.axes), 0)) /
                    static_cast<double>(std::max<int64_t>(factor.size, 1));
          return part;
        }
      return 1.0;
    };
    const double ofOperands = share(rule.operands, op.operands, operands);
    return ofOperands < 1 ? ofOperands : share(rule.results, op.results, results);
  }

  const LayoutInput &input;
  const ShardingProblem &problem;
  ShardingTable table;
  std::vector<int64_t> elements; // of the first rank's share, by sharding
  std::map<std::tuple<ShardingId, ShardingId, int64_t>, int64_t> reshards;
  std::vector<bool> moved;
};

class LayoutBuilder {
public:
  LayoutBuilder(const LayoutInput &input, LayoutProblem &out)
      : input(input), problem(input.problem), out(out), prices(input), rematerialisable(rematerialisableTensors(problem)),
        demands(problem.tensors.size()) {}

  void build() {
    out.opNodes.assign(problem.ops.size(), -1);
    out.nameNodes.assign(problem.names.size(), -1);
    findTwins();
    for (OpId id = 0; id < last(); ++id)
      if (isNode(id) && twins[id] < 0)
        addOpNode(id);
    for (OpId id = 0; id < last(); ++id)
      if (isNode(id) && twins[id] >= 0)
        out.opNodes[id] = out.opNodes[twins[id]];
    for (OpId id = 0; id < last(); ++id)
      if (isNode(id))
        demandOperands(id);
    addNames();
    for (TensorId t = 0; t < static_cast<TensorId>(problem.tensors.size()); ++t)
      joinDemands(t);
    demandResults();
    finish();
  }

private:
  struct Way { // a choice of an op
    std::vector<ShardingId> operands, results, delivered;
    int64_t cost = 0;
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
    std::map<std::pair<int, std::string>, OpId> first;
    for (OpId id = 0; id < last(); ++id)
      if (const LayerPlace &place = input.ops[id]; place.kind >= 0 && place.instance == 0)
        first[{place.kind, place.name}] = id;
    for (OpId id = 0; id < last(); ++id)
      if (const LayerPlace &place = input.ops[id]; place.kind >= 0 && place.instance > 0)
        if (const auto found = first.find({place.kind, place.name}); found != first.end() && alike(id, found->second))
          twins[id] = found->second;
  }

  bool alike(OpId a, OpId b) const {
    const ProblemOp &one = problem.ops[a], &other = problem.ops[b];
    const auto shapes = [&](const std::vector<TensorId> &x, const std::vector<TensorId> &y) {
      return std::ranges::equal(x, y, [&](TensorId s, TensorId t) {
        return problem.tensors[s].shape == problem.tensors[t].shape && isPassedOn(s) == isPassedOn(t);
      });
    };
    return one.kind == other.kind && one.rule == other.rule && one.backward == other.backward && isNode(b) &&
           shapes(one.operands, other.operands) && shapes(one.results, other.results) &&
           choicesOf(problem, a) == choicesOf(problem, b);
  }

  // ---- nodes -------------------------------------------------------------------------------------------------------

  int addNode(std::vector<int64_t> costs) {
    out.made.nodes.push_back({.costs = std::move(costs)});
    out.decisions.emplace_back();
    out.stored.emplace_back();
    ways.emplace_back();
    return static_cast<int>(out.made.nodes.size()) - 1;
  }

  /// Whether a tensor is read once, by an op that may take a partial sum of it.
  bool isPassedOn(TensorId tensor) const {
    const std::vector<Use> &uses = problem.tensors[tensor].uses;
    if (uses.size() != 1)
      return false;
    const ProblemOp &user = problem.ops[uses[0].op];
    if (user.kind == OpKind::Return)
      return problem.results[static_cast<size_t>(uses[0].operand)].mayBePartial;
    return isNode(uses[0].op) && (user.kind == OpKind::Reshape ||
                                  (user.rule >= 0 && passesSum(problem, user, static_cast<size_t>(uses[0].operand))));
  }

  /// The shardings under which a result can be delivered: as it is, its sum, or a share of its sum.
  std::vector<Sharding> deliveries(TensorId tensor, const Sharding &result) const {
    if (result.partialAxes.empty())
      return {result};
    std::vector<Sharding> all;
    const bool sums = result.partialKind == PartialKind::Sum;
    const std::vector<std::string> &axes = result.partialAxes;
    for (size_t kept = 0; kept < size_t{1} << axes.size(); ++kept) {
      if (kept && !(sums && isPassedOn(tensor)))
        break;
      Sharding whole = result;
      std::vector<std::string> reduced;
      whole.partialAxes.clear();
      for (size_t a = 0; a < axes.size(); ++a)
        (kept >> a & 1 ? whole.partialAxes : reduced).push_back(axes[a]);
      all.push_back(whole);
      if (!sums || reduced.empty())
        continue;
      for (size_t d = 0; d < whole.dims.size(); ++d) {
        if (whole.dims[d].split() || problem.tensors[tensor].shape[d] < problem.mesh.size(reduced))
          continue;
        Sharding scattered = whole;
        scattered.dims[d].factors = {{problem.tensors[tensor].shape[d], reduced}};
        scattered.normalise(problem.mesh);
        all.push_back(std::move(scattered));
      }
    }
    for (Sharding &one : all)
      if (one.partialAxes.empty())
        one.partialKind = PartialKind::Sum;
    return all;
  }

  void addOpNode(OpId id) {
    const ProblemOp &op = problem.ops[id];
    const std::vector<OpSharding> choices = choicesOf(problem, id);
    std::vector<Way> found;
    std::map<std::pair<std::vector<ShardingId>, std::vector<ShardingId>>, size_t> same; // by operands and delivered
    for (const OpSharding &choice : choices) {
      Way way;
      for (const Sharding &operand : choice.operands)
        way.operands.push_back(prices.intern(operand));
      for (const Sharding &result : choice.results)
        way.results.push_back(prices.intern(result));
      const int64_t cost = prices.op(op, way.operands, way.results);
      std::vector<std::vector<Sharding>> each;
      for (size_t r = 0; r < op.results.size(); ++r)
        each.push_back(deliveries(op.results[r], choice.results[r]));
      std::vector<size_t> at(each.size());
      for (bool more = true; more;) {
        way.delivered.clear();
        way.cost = cost;
        for (size_t r = 0; r < each.size(); ++r) {
          way.delivered.push_back(prices.intern(each[r][at[r]]));
          way.cost +=
              prices.reshard(way.results[r], way.delivered[r], problem.tensors[op.results[r]].elementBits);
        }
        const auto [entry, fresh] = same.try_emplace({way.operands, way.delivered}, found.size());
        if (fresh)
          found.push_back(way);
        else if (way.cost < found[entry->second].cost)
          found[entry->second] = way;
        size_t r = 0;
        while (r < each.size() && ++at[r] == each[r].size())
          at[r++] = 0;
        more = r < each.size();
      }
    }
    if (found.empty())
      throw userError("the search: an op cannot be run under its mark");
    const int node = addNode(std::vector<int64_t>(found.size()));
    out.opNodes[id] = node;
    for (const Way &way : found) {
      OpDecision decision;
      for (const ShardingId operand : way.operands)
        decision.sharding.operands.push_back(prices[operand]);
      for (const ShardingId result : way.results)
        decision.sharding.results.push_back(prices[result]);
      for (const ShardingId delivered : way.delivered)
        decision.delivered.push_back(prices[delivered]);
      out.decisions[node].push_back(std::move(decision));
    }
    ways[node] = std::move(found);
  }

  // ---- operands ----------------------------------------------------------------------------------------------------

  static int placeOf(const ProblemOp &op) { return 2 * (op.stage + 1) + op.backward; }

  void demandOperands(OpId id) {
    const ProblemOp &op = problem.ops[id];
    const int node = out.opNodes[id];
    for (size_t c = 0; c < ways[node].size(); ++c)
      out.made.nodes[node].costs[c] += ways[node][c].cost * timesOf(input.ops[id]);
    for (size_t i = 0; i < op.operands.size(); ++i) {
      std::vector<ShardingId> wanted;
      for (const Way &way : ways[node])
        wanted.push_back(way.operands[i]);
      demand(op.operands[i], node, id, wanted, placeOf(op));
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
      demand(operand, node, user, source, placeOf(*maker));
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
          ways[node].push_back({.delivered = {one}});
        }
      }
      out.nameNodes[n] = node;
      for (size_t c = 0; c < ways[node].size(); ++c)
        out.made.nodes[node].costs[c] +=
            prices.update(ways[node][c].delivered[0], problem.tensors[tensors[n]].elementBits) * timesOf(place);
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
    static const LayerPlace nowhere;
    Source source{.place = &nowhere};
    const auto fromWays = [&](int node, size_t result) {
      source.node = node;
      for (const Way &way : ways[node])
        source.has.push_back(way.delivered[result]);
    };
    if (const OpId op = problem.tensors[tensor].op; op >= 0) {
      const std::vector<TensorId> &results = problem.ops[op].results;
      fromWays(out.opNodes[op], static_cast<size_t>(std::ranges::find(results, tensor) - results.begin()));
      source.place = &input.ops[op];
    } else if (const Argument &argument = problem.arguments[tensor]; argument.pinned) {
      source.has.push_back(prices.intern(*argument.pinned));
    } else {
      fromWays(out.nameNodes[argument.name], 0);
      source.place = &input.names[argument.name];
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
    if (fixed || prices[from].partialAxes != prices[to].partialAxes || prices[from].partialKind != prices[to].partialKind)
      return impossible;
    return prices.reshard(from, to, bits);
  }

  void joinDemands(TensorId tensor) {
    if (demands[tensor].empty())
      return;
    const Source source = sourceOf(tensor);
    const bool fixed = problem.tensors[tensor].fixed;
    std::map<int, std::vector<const Demand *>> places;
    for (const Demand &demand : demands[tensor])
      places[demand.place].push_back(&demand);
    for (const auto &[place, all] : places) {
      std::map<ShardingId, std::set<int>> wanting;      // nodes by what they may want
      for (const Demand *demand : all)
        for (const ShardingId one : demand->wanted)
          if (one >= 0)
            wanting[one].insert(demand->node);
      std::map<ShardingId, int> shared; // the nodes of reshards that several ops may share
      for (const auto &[wanted, nodes] : wanting) {
        if (nodes.size() < 2)
          continue;
        std::vector<int64_t> costs(source.has.size());
        bool any = false;
        for (size_t c = 0; c < source.has.size(); ++c) {
          costs[c] = move(source.has[c], wanted, all[0]->bits, fixed);
          any |= costs[c] != 0 && costs[c] < impossible;
        }
        if (!any)
          continue;
        const int node = addNode({0, 0}); // not made, made
        shared[wanted] = node;
        int64_t times = 1;
        for (const Demand *demand : all)
          times = std::max(times, timesOf(tensor, *source.place, demand->user));
        for (size_t c = 0; c < source.has.size(); ++c)
          if (costs[c] < impossible)
            addCost(source.node, c, node, 1, costs[c] * times);
      }
      for (const Demand *demand : all)
        joinDemand(tensor, source, *demand, shared, fixed);
    }
  }

  void joinDemand(TensorId tensor, const Source &source, const Demand &demand, const std::map<ShardingId, int> &shared,
                  bool fixed) {
    const int64_t times = timesOf(tensor, *source.place, demand.user);
    for (size_t u = 0; u < demand.wanted.size(); ++u) {
      const ShardingId wanted = demand.wanted[u];
      if (wanted < 0)
        continue;
      const auto sharing = shared.find(wanted);
      for (size_t c = 0; c < source.has.size(); ++c) {
        const int64_t cost = move(source.has[c], wanted, demand.bits, fixed);
        if (cost == 0)
          continue;
        if (cost >= impossible)
          addCost(source.node, c, demand.node, u, impossible);
        else if (sharing == shared.end())
          addCost(source.node, c, demand.node, u, cost * times);
      }
      if (sharing != shared.end())
        addCost(sharing->second, 0, demand.node, u, needsReshard);
    }
  }
  static constexpr int64_t needsReshard = impossible;

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
      const Source source = sourceOf(tensor);
      const int64_t times = timesOf(*source.place), bits = problem.tensors[tensor].elementBits;
      const size_t rank = problem.tensors[tensor].shape.size();
      const int name = result.follows < 0 ? -1 : out.nameNodes[result.follows];
      std::vector<ShardingId> stored;
      if (name >= 0)
        for (const Way &way : ways[name])
          stored.push_back(way.delivered[0]);
      else if (result.follows >= 0 && problem.names[result.follows].sharding)
        stored.push_back(prices.intern(*problem.names[result.follows].sharding));
      if (stored.empty() || prices[stored[0]].dims.size() != rank)
        stored = {prices.intern(Sharding::replicated(problem.tensors[tensor].shape))};
      for (size_t p = 0; p < stored.size(); ++p)
        for (size_t c = 0; c < source.has.size(); ++c) {
          const int64_t cost = costOfResult(result, source.has[c], stored[p], bits) * times;
          if (stored.size() > 1)
            addCost(source.node, c, name, p, cost);
          else if (source.node >= 0)
            out.made.nodes[source.node].costs[c] += cost;
        }
    }
  }

  /// A result that may stay partial is summed once an iteration.
  int64_t costOfResult(const Result &result, ShardingId has, ShardingId stored, int64_t bits) {
    Sharding required = prices[stored];
    if (result.mayBePartial)
      for (const std::string &axis : prices[has].partialAxes)
        if (!required.splitsOver(axis))
          required.partialAxes.push_back(axis), required.partialKind = prices[has].partialKind;
    const ShardingId between = prices.intern(std::move(required));
    return prices.reshard(has, between, bits) + prices.reshard(between, stored, bits) / input.microbatches;
  }

  void finish() {
    for (AssignmentNode &node : out.made.nodes)
      for (int64_t &cost : node.costs)
        cost = std::min(cost, impossible);
    for (auto &[nodes, costs] : edges) {
      for (int64_t &cost : costs)
        cost = std::min(cost, impossible);
      if (std::ranges::any_of(costs, [](int64_t cost) { return cost != 0; }))
        out.made.edges.push_back({{static_cast<uint32_t>(nodes.first), static_cast<uint32_t>(nodes.second)}, costs});
    }
  }

  const LayoutInput &input;
  const ShardingProblem &problem;
  LayoutProblem &out;
  LayoutPrices prices;
  const std::vector<bool> rematerialisable;
  std::vector<OpId> twins;             // by op of a second layer: the op of the first one
  std::vector<std::vector<Way>> ways;  // by node
  std::vector<std::vector<Demand>> demands; // by tensor
  std::map<std::pair<int, int>, std::vector<int64_t>> edges;
};

LayoutProblem::LayoutProblem(const LayoutInput &input) { LayoutBuilder(input, *this).build(); }

DecidedLayouts LayoutProblem::decided(const std::vector<uint32_t> &assignment) const {
  DecidedLayouts layouts;
  for (const int node : opNodes)
    layouts.ops.push_back(node < 0 ? std::nullopt : std::optional(decisions[node][assignment[node]]));
  for (const int node : nameNodes)
    layouts.names.push_back(node < 0 ? std::nullopt : std::optional(stored[node][assignment[node]]));
  return layouts;
}

} // namespace cleave::partitioner
