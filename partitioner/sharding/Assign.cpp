// Chooses shardings in one walk in program order. A parameter or buffer stays *open* until its first use decides its
// sharding; constants and broadcasts are recomputed under the sharding that a user needs; all other mismatches become
// reshards.
#include "partitioner/sharding/Assign.h"

#include "partitioner/sharding/Draft.h"
#include "partitioner/sharding/Heads.h"
#include "partitioner/sharding/OpSharding.h"
#include "partitioner/sharding/Reshape.h"
#include "runtime/base/Error.h"

#include <algorithm>
#include <map>
#include <tuple>

namespace cleave::partitioner {
namespace {

using Axes = std::vector<std::string>;

bool contains(const Axes &axes, const std::string &axis) {
  return std::find(axes.begin(), axes.end(), axis) != axes.end();
}

bool usesAxis(const LoopSplits &splits, const std::string &axis) {
  for (const DimSharding &split : splits)
    for (const Factor &factor : split.factors)
      if (contains(factor.axes, axis))
        return true;
  return false;
}

// Splits `loop` as `candidate` unless the loop is already split or one of the candidate's axes is in use.
void propose(LoopSplits &splits, int loop, const DimSharding &candidate, const Axes &passed) {
  if (!candidate.split() || splits[loop].split())
    return;
  for (const Factor &part : candidate.factors)
    for (const std::string &axis : part.axes)
      if (usesAxis(splits, axis) || contains(passed, axis))
        return;
  splits[loop] = candidate;
}

bool splitsRows(const DimSharding &dim) {
  return std::any_of(dim.factors.begin(), dim.factors.end(),
                     [](const Factor &f) { return hasRole(f.axes, AxisRole::Data); });
}

class Assigner {
public:
  Assigner(const ShardingProblem &problem, const DecidedOps &decided, std::vector<bool> *expected)
      : problem(problem), decided(decided), expected(expected), draft(problem),
        rematerialisable(rematerialisableTensors(problem)), open(problem.arguments.size()),
        waiting(problem.tensors.size()), named(problem.names.size()), gradients(problem.names.size()) {
    if (expected)
      expected->assign(problem.ops.size(), false);
  }

  ShardingSolution run() {
    for (size_t n = 0; n < problem.names.size(); ++n)
      if (problem.names[n].sharding)
        named[n] = draft.intern(*problem.names[n].sharding);
    for (TensorId a = 0; a < (TensorId)problem.arguments.size(); ++a) {
      const std::optional<Sharding> &pinned = problem.arguments[a].pinned;
      open[a] = !pinned;
      draft.set(a, pinned ? draft.intern(*pinned) : replicated(a));
    }
    const OpId last = static_cast<OpId>(problem.ops.size()) - 1;
    for (OpId op = 0; op < last; ++op)
      visit(op);
    visited = last;
    visitReturn(last);
    closeRest();
    draft.mergeSums();
    return draft.finish(std::move(named));
  }

private:
  const ShardingProblem &problem;
  const DecidedOps &decided;
  std::vector<bool> *expected;
  Draft draft;
  const std::vector<bool> rematerialisable;     // by tensor of the problem
  std::vector<bool> open;                       // undecided arguments
  std::vector<bool> waiting;                    // casts and transposes of open arguments: decided with the argument
  std::vector<std::optional<ShardingId>> named; // shardings of the names decided so far
  std::vector<std::vector<int>> gradients;      // by name: results that are its gradients
  std::map<std::tuple<TensorId, ShardingId, int>, TensorId> resharded; // by tensor, new sharding and place
  std::map<TensorId, TensorId> delivered; // by result of a decided op: the reshard that the ops behind it read
  std::map<TensorId, ShardingId> toRead;  // by result of a decided op: what the backward pass reads
  std::map<TensorId, TensorId> read;      // the same when it is made
  OpId visited = -1;

  ShardingId replicated(TensorId tensor) { return draft.intern(Sharding::replicated(problem.tensors[tensor].shape)); }

  // With the rows split over dp, if there are enough of them.
  ShardingId splitOverData(TensorId tensor) {
    const int64_t dp = problem.mesh.size(AxisRole::Data);
    if (dp == 1 || problem.tensors[tensor].shape[0] < dp)
      return replicated(tensor);
    Sharding split = Sharding::replicated(problem.tensors[tensor].shape);
    split.dims[0].factors[0].axes = axesOf(AxisRole::Data);
    return draft.intern(std::move(split));
  }

  // ---- open arguments ----------------------------------------------------------------------------------------------

  // The operand of a cast or transpose, whose sharding is decided together with the result; -1 for any other tensor.
  TensorId sourceOf(TensorId tensor) const {
    const ProblemOp *maker = draft.originMaker(tensor);
    const bool renames = maker && (maker->kind == OpKind::Cast || maker->kind == OpKind::Transpose);
    return renames ? draft.operandsOf(draft.makerOf(tensor))[0] : -1;
  }

  TensorId rootOf(TensorId tensor) const {
    for (TensorId source = sourceOf(tensor); source >= 0; source = sourceOf(tensor))
      tensor = source;
    return tensor;
  }

  // The sharding of a tensor, given the sharding of its root. toRoot is the inverse.
  Sharding fromRoot(TensorId tensor, const Sharding &root) const {
    const TensorId source = sourceOf(tensor);
    if (source < 0)
      return root;
    const Sharding from = fromRoot(source, root);
    Sharding sharding = from;
    const OpRule &rule = problem.rules[draft.originMaker(tensor)->rule];
    for (size_t d = 0; d < sharding.dims.size(); ++d)
      sharding.dims[d] = from.dims[dimOf(rule.operands[0], rule.results[0][d].loop)];
    return sharding;
  }

  Sharding toRoot(TensorId tensor, const Sharding &sharding) const {
    const TensorId source = sourceOf(tensor);
    if (source < 0)
      return sharding;
    Sharding to = sharding;
    const OpRule &rule = problem.rules[draft.originMaker(tensor)->rule];
    for (size_t d = 0; d < sharding.dims.size(); ++d)
      to.dims[dimOf(rule.operands[0], rule.results[0][d].loop)] = sharding.dims[d];
    return toRoot(source, to);
  }

  bool isArgument(TensorId tensor) const { return tensor < (TensorId)problem.arguments.size(); }

  bool isOpen(TensorId tensor) {
    const TensorId root = rootOf(tensor);
    if (isArgument(root) && open[root])
      return true;
    if (root != tensor && tensor < (TensorId)waiting.size() && waiting[tensor]) {
      waiting[tensor] = false;
      draft.set(tensor, draft.intern(fromRoot(tensor, draft.of(root))));
    }
    return false;
  }

  // Decides an open argument. `tensor`: the argument, or a cast or transpose of it, which gets `sharding`.
  void close(TensorId tensor, ShardingId sharding) {
    const TensorId argument = rootOf(tensor);
    draft.set(tensor, sharding);
    draft.set(argument, draft.intern(toRoot(tensor, draft.sharding(sharding))));
    named[problem.arguments[argument].name] = draft.idOf(argument);
    waiting[tensor] = false;
    open[argument] = false;
  }

  bool isParameter(TensorId tensor) const {
    const TensorId root = rootOf(tensor);
    return isArgument(root) && named[problem.arguments[root].name];
  }

  // Replicates arguments that no op has decided.
  void closeRest() {
    for (TensorId a = 0; a < (TensorId)open.size(); ++a)
      if (open[a])
        close(a, draft.idOf(a));
    for (TensorId t = 0; t < (TensorId)waiting.size(); ++t)
      if (waiting[t])
        isOpen(t);
  }

  // ---- uses --------------------------------------------------------------------------------------------------------

  // Gives a broadcast its operand once the result is used under its present sharding. This decides an open argument; an
  // argument that another use has decided otherwise in the meantime is resharded to fit the broadcast's result.
  void settle(TensorId tensor, ShardingId sharding) {
    const ProblemOp *maker = draft.originMaker(tensor);
    if (!maker || (maker->kind != OpKind::Broadcast && !isLate(*maker)))
      return;
    const OpId op = draft.makerOf(tensor);
    // The broadcast may be moved, because its users come later in the walk.
    for (size_t i = 0; i < maker->operands.size(); ++i)
      takeOperand(op, i, draft.operandsOf(op)[i], operandOfCopy(*maker, sharding), op);
  }

  // Whether the op gets its operands when its result is used. If ops are decided, these are all that are
  // rematerialised: their own shardings should move nothing.
  bool isLate(const ProblemOp &op) const {
    return !decided.empty() && !op.results.empty() && rematerialisable[op.results[0]];
  }

  const std::vector<int64_t> &shapeOf(TensorId tensor) const {
    while (tensor >= static_cast<TensorId>(problem.tensors.size()))
      tensor = draft.isReshard(draft.makerOf(tensor)) ? draft.operandsOf(draft.makerOf(tensor))[0]
                                                      : draft.originMaker(tensor)->results[0];
    return problem.tensors[tensor].shape;
  }

  // The tensor that an op reads, if it is to read a tensor of the problem.
  TensorId at(TensorId tensor) const {
    if (visited >= 0 && problem.ops[visited].backward)
      if (const auto found = read.find(tensor); found != read.end())
        return found->second;
    const auto found = delivered.find(tensor);
    return found == delivered.end() ? tensor : found->second;
  }

  // Makes what the backward pass reads before the first op that does.
  void readForBackward(OpId id) {
    for (const TensorId operand : problem.ops[id].operands)
      if (const auto found = toRead.find(operand); found != toRead.end() && problem.ops[id].backward) {
        const ShardingId to = found->second;
        toRead.erase(found);
        read[operand] = use(operand, to, id);
      }
  }

  // Sets operand `i` of an added or moved op to `operand` under `wanted`, and moves the op behind the op that computes
  // this.
  void takeOperand(OpId op, size_t i, TensorId operand, ShardingId wanted, OpId user) {
    const TensorId source = use(operand, wanted, user);
    draft.setOperand(op, i, source);
    if (const OpId maker = draft.makerOf(source); maker >= 0 && draft.isBefore(op, maker))
      draft.moveAfter(op, maker);
  }

  ShardingId operandOfCopy(const ProblemOp &op, ShardingId result) {
    return op.kind == OpKind::Broadcast ? draft.intern(broadcastOperand(problem.rules[op.rule], draft.sharding(result)))
                                        : result;
  }

  // A number for the stage and pass of an op: ops with the same number share reshards.
  int placeOf(OpId op) const {
    while (draft.isReshard(op))
      op = draft.marksOf(op);
    const ProblemOp &origin = *draft.originOf(op);
    return 2 * (origin.stage + 1) + origin.backward;
  }
  static constexpr int anywhere = -1;

  // Returns `tensor` under the sharding `wanted` for op `user`; adds ops if needed.
  TensorId use(TensorId tensor, ShardingId wanted, OpId user) {
    tensor = at(tensor);
    if (isOpen(tensor)) { // also gives casts and transposes of a decided argument their sharding
      close(tensor, wanted);
      return tensor;
    }
    if (draft.idOf(tensor) == wanted) {
      settle(tensor, wanted);
      return tensor;
    }
    const Sharding &current = draft.of(tensor), &required = draft.sharding(wanted);
    const OpId maker = draft.makerOf(tensor);
    if (current.partialAxes != required.partialAxes && !current.partialAxes.empty()) {
      Sharding whole = current;
      whole.partialAxes = required.partialAxes;
      whole.partialKind = required.partialKind;
      return use(reshard(tensor, draft.intern(std::move(whole)), maker < 0 ? user : maker, maker >= 0), wanted, user);
    }
    if (const TensorId joined = useBeforeReshape(tensor, wanted); joined >= 0)
      return joined;
    if (isRematerialisable(tensor)) {
      auto [entry, fresh] = resharded.try_emplace({tensor, wanted, anywhere}, -1);
      if (fresh)
        entry->second = rematerialise(maker, wanted);
      return entry->second;
    }
    return reshard(tensor, wanted, user, false);
  }

  // Gathers a reshaped activation with a split sequence before the reshape, so that both products of a backward pass
  // read one gathered gradient. Returns -1 for any other tensor.
  TensorId useBeforeReshape(TensorId tensor, ShardingId wanted) {
    const ProblemOp *origin = draft.originMaker(tensor);
    if (!problem.sequence || !origin || origin->kind != OpKind::Reshape)
      return -1;
    const OpId maker = draft.makerOf(tensor);
    const TensorId source = draft.operandsOf(maker)[0];
    if (source >= (TensorId)problem.tensors.size() || draft.of(source).dims.size() != sequenceRank ||
        !isSequence(source, sequenceDim) || !draft.of(source).partialAxes.empty())
      return -1;
    auto operand = reshapeSharding(draft.sharding(wanted), problem.tensors[origin->results[0]].shape,
                                   problem.tensors[source].shape, problem.mesh);
    if (!operand)
      return -1;
    auto [entry, fresh] = resharded.try_emplace({tensor, wanted, anywhere}, -1);
    if (fresh) {
      const OpId copy = draft.addCopy(maker, wanted);
      takeOperand(copy, 0, source, draft.intern(std::move(*operand)), maker);
      entry->second = draft.resultOf(copy);
    }
    return entry->second;
  }

  bool isRematerialisable(TensorId tensor) const {
    const ProblemOp *maker = draft.originMaker(tensor);
    return maker && rematerialisable[maker->results[0]];
  }

  // Adds a copy of the op whose result has the sharding `wanted`; returns that result.
  TensorId rematerialise(OpId op, ShardingId wanted) {
    const OpId copy = draft.addCopy(op, wanted);
    const ProblemOp &origin = *draft.originOf(op);
    for (size_t i = 0; i < origin.operands.size(); ++i)
      takeOperand(copy, i, draft.operandsOf(op)[i], operandOfCopy(origin, wanted), op);
    return draft.resultOf(copy);
  }

  // Adds a reshard behind op `where` (sums are reduced right after the op that computes them) or before it.
  TensorId reshard(TensorId tensor, ShardingId to, OpId where, bool behind) {
    if (tensor < (TensorId)problem.tensors.size() && problem.tensors[tensor].fixed)
      throw Error(Status::Internal, "the workspace of a max-pool cannot be split otherwise");
    auto [entry, fresh] = resharded.try_emplace({tensor, to, placeOf(where)}, -1);
    if (fresh)
      entry->second =
          behind ? draft.addReshardAfter(tensor, to, where, where) : draft.addReshardBefore(tensor, to, where, where);
    return entry->second;
  }

  // ---- ops ---------------------------------------------------------------------------------------------------------

  void visit(OpId id) {
    const ProblemOp &op = problem.ops[id];
    visited = id;
    readForBackward(id);
    const bool renames = op.kind == OpKind::Cast || op.kind == OpKind::Transpose;
    if (renames && isOpen(op.operands[0])) {
      waiting[op.results[0]] = true;
      draft.set(op.results[0], replicated(op.results[0]));
    } else if (op.kind == OpKind::Free && op.samples) {
      draft.set(op.results[0], splitOverData(op.results[0]));
    } else if (op.kind == OpKind::Free || isLate(op) ||
               (op.kind == OpKind::Broadcast && isOpenBroadcast(op.operands[0]))) {
      draft.set(op.results[0], replicated(op.results[0]));
    } else if (!decided.empty() && decided[id]) {
      follow(id, op, *decided[id]);
    } else {
      run(id, op, choose(op));
    }
  }

  OpSharding choose(const ProblemOp &op) { return op.kind == OpKind::Reshape ? chooseReshape(op) : chooseByRule(op); }

  void run(OpId id, const ProblemOp &op, const OpSharding &sharding) {
    for (size_t i = 0; i < op.operands.size(); ++i)
      draft.setOperand(id, i, use(op.operands[i], draft.intern(sharding.operands[i]), id));
    for (size_t r = 0; r < op.results.size(); ++r)
      draft.set(op.results[r], draft.intern(sharding.results[r]));
  }

  // Runs an op as decided. A partial sum that is delivered whole is reduced when it is used, as every partial sum;
  // whatever else is delivered is made at once, and read by all ops behind it.
  void follow(OpId id, const ProblemOp &op, const OpDecision &decision) {
    bool usual = true;
    if (expected)
      (*expected)[id] = choose(op) == decision.sharding;
    run(id, op, decision.sharding);
    for (size_t r = 0; r < op.results.size(); ++r) {
      const TensorId result = op.results[r];
      if (!decision.backward.empty() && decision.backward[r]) {
        toRead[result] = draft.intern(*decision.backward[r]);
        usual = false;
      }
      Sharding whole = decision.sharding.results[r];
      whole.partialAxes.clear();
      const ShardingId to = draft.intern(decision.delivered[r]);
      if (to == draft.idOf(result) || to == draft.intern(std::move(whole)))
        continue;
      usual = false;
      const TensorId made = draft.addReshardAfter(result, to, id, id);
      for (const Use &use : problem.tensors[result].uses)
        draft.setOperand(use.op, static_cast<size_t>(use.operand), made);
      delivered[result] = made;
    }
    if (expected && !usual)
      (*expected)[id] = false;
  }

  // Whether the operand of a broadcast is open, possibly through other broadcasts.
  bool isOpenBroadcast(TensorId operand) {
    if (isOpen(operand))
      return true;
    const ProblemOp *maker = draft.originMaker(operand);
    return maker && maker->kind == OpKind::Broadcast && isOpenBroadcast(draft.operandsOf(draft.makerOf(operand))[0]);
  }

  OpSharding chooseReshape(const ProblemOp &op) const {
    const TensorId input = at(op.operands[0]);
    Sharding required = draft.of(input);
    if (!required.partialAxes.empty() && !(required.partialKind == PartialKind::Sum && draft.usesOf(input) == 1))
      required.partialAxes.clear();
    Sharding result = reshapeOrGather(required, problem.tensors[op.operands[0]].shape,
                                      problem.tensors[op.results[0]].shape, problem.mesh);
    return {{std::move(required)}, {std::move(result)}};
  }

  // Axes over which the op's operands are partial sums that the op may pass on unreduced. Only operands with a single
  // use are passed on; otherwise both the operand and the result would be reduced.
  Axes passedAxes(const ProblemOp &op) {
    const SumPassing sums = problem.rules[op.rule].sums;
    if (sums == SumPassing::None)
      return {};
    Axes axes;
    size_t passing = 0;
    for (size_t i = 0; i < op.operands.size(); ++i) {
      const TensorId operand = at(op.operands[i]);
      if (!passesSum(problem, op, i))
        continue;
      ++passing;
      if (isOpen(operand))
        return {};
      const Sharding &sharding = draft.of(operand);
      if (sharding.partialAxes.empty() || sharding.partialKind != PartialKind::Sum || draft.usesOf(operand) != 1)
        return {};
      if (!axes.empty() && axes != sharding.partialAxes)
        return {};
      axes = sharding.partialAxes;
    }
    return sums == SumPassing::Linear || passing == 1 ? axes : Axes{};
  }

  LoopSplits chooseSplits(const ProblemOp &op, const Axes &passed) {
    const OpRule &rule = problem.rules[op.rule];
    LoopSplits splits(rule.loops.size());
    if (op.kind == OpKind::Mark) {
      applyMark(op, rule, splits);
      return splits;
    }
    const auto takeDim = [&](size_t i, size_t d, const DimSharding &split, auto wanted) {
      const RuleDim &dim = rule.operands[i][d];
      const auto run = splitOfRun(split, dim.runs);
      if (run && rule.loops[dim.loop] != LoopKind::Whole && wanted(*run))
        propose(splits, dim.loop, *run, passed);
    };
    const auto take = [&](size_t i, auto wanted) {
      const Sharding &sharding = draft.of(at(op.operands[i]));
      for (size_t d = 0; d < rule.operands[i].size(); ++d)
        if (!isSequence(at(op.operands[i]), d))
          takeDim(i, d, sharding.dims[d], wanted);
    };
    const auto any = [](const DimSharding &) { return true; };
    const auto takeSequence = [&](size_t i) {
      for (size_t d = 0; d < rule.operands[i].size(); ++d)
        if (!isOpen(op.operands[i]) && isSequence(at(op.operands[i]), d))
          takeDim(i, d, sequenceSplit(at(op.operands[i]), d), any);
    };
    if (rule.leader >= 0) {
      take(rule.leader, any);
      takeSequence(rule.leader);
      return splits;
    }
    // Splits of decided parameters come first, so that parameters are moved last. Their splits over dp come after those
    // of the other operands: a parameter that is stored split over dp is gathered if dp splits the rows.
    const auto each = [&](bool parameters, auto wanted) {
      for (size_t i = 0; i < op.operands.size(); ++i)
        if (!isOpen(op.operands[i]) && isParameter(op.operands[i]) == parameters)
          take(i, wanted);
    };
    each(true, [](const DimSharding &dim) { return !splitsRows(dim); });
    each(false, any);
    each(true, any);
    chooseDefault(op, rule, splits, passed);
    if (rule.gradientLoop >= 0)
      if (const std::optional<ShardingId> parameter = gradientTarget(op.results[0]))
        propose(splits, rule.gradientLoop, draft.sharding(*parameter).dims[0], passed);
    // All other splits take precedence over a split sequence: products that a weight splits take the whole sequence.
    for (size_t i = 0; i < op.operands.size(); ++i)
      takeSequence(i);
    return splits;
  }

  // Whether a dimension of an activation is a split sequence, or will be when the tensor's partial sum is reduced. The
  // activation is [batch, sequence, width], or its first two dimensions are joined.
  bool isSequence(TensorId tensor, size_t dim) const {
    if (!problem.sequence || isParameter(tensor))
      return false;
    const Sharding &sharding = draft.of(tensor);
    const std::vector<Factor> &factors = sharding.dims[dim].factors;
    const bool activation = sharding.dims.size() == sequenceRank && dim == sequenceDim;
    if (activation || (sharding.dims.size() == 2 && dim == 0 && factors.size() > 1))
      if (factors.back().axes == Axes{sequenceAxis})
        return true;
    const bool rows = sharding.dims.size() == 2 && dim == 0 && contains(factors.back().axes, sequenceAxis);
    if (rows && factors.size() == 1 && joinsSequence(tensor))
      return true;
    return activation && !sharding.dims[dim].split() && sharding.partialKind == PartialKind::Sum &&
           contains(sharding.partialAxes, sequenceAxis) && shapeOf(tensor)[dim] >= problem.mesh.size(sequenceAxis);
  }
  // Whether a tensor is an activation with a split sequence whose first two dimensions are joined. Needed if the
  // factors do not show it: with one row per rank, batch and sequence are one factor.
  bool joinsSequence(TensorId tensor) const {
    const ProblemOp *maker = draft.originMaker(tensor);
    if (!maker || (maker->kind != OpKind::Reshape && maker->kind != OpKind::Cast))
      return false;
    const TensorId source = draft.operandsOf(draft.makerOf(tensor))[0];
    if (maker->kind == OpKind::Cast)
      return joinsSequence(source);
    const std::vector<int64_t> &from = problem.tensors[maker->operands[0]].shape,
                               &to = problem.tensors[maker->results[0]].shape;
    return from.size() >= sequenceRank && to[0] == from[0] * from[sequenceDim] &&
           contains(draft.of(source).dims[sequenceDim].factors.back().axes, sequenceAxis);
  }
  DimSharding sequenceSplit(TensorId tensor, size_t dim) const {
    const DimSharding &split = draft.of(tensor).dims[dim];
    return split.split() ? split : DimSharding{{Factor{shapeOf(tensor)[dim], {sequenceAxis}}}};
  }

  // Tensor parallelism by default: an undecided weight is split by its output (by heads where attention follows), an
  // embedding by its rows, unless the input's split already made it row parallel (Shoeybi et al. 2019).
  void chooseDefault(const ProblemOp &op, const OpRule &rule, LoopSplits &splits, const Axes &passed) {
    const int64_t tp = problem.mesh.size(AxisRole::Tensor);
    if (tp == 1 || rule.defaultLoop < 0 || !isOpen(op.operands[rule.parameterOperand]) ||
        std::ranges::any_of(axesOf(AxisRole::Tensor), [&](const auto &axis) { return usesAxis(splits, axis); }))
      return;
    const size_t d = dimOf(rule.operands[rule.parameterOperand], rule.defaultLoop);
    const int64_t size = problem.tensors[op.operands[rule.parameterOperand]].shape[d];
    if (size < tp)
      return;
    DimCut cut{1, size, 1};
    if (rule.loops[rule.defaultLoop] == LoopKind::Parallel)
      cut = defaultCut(problem, op.results[0], dimOf(rule.results[0], rule.defaultLoop), tp);
    propose(splits, rule.defaultLoop, cut.over(axesOf(AxisRole::Tensor)), passed);
  }

  // Applies a mark. Dimensions that it does not mention keep their split unless the mark uses their axes elsewhere.
  void applyMark(const ProblemOp &op, const OpRule &rule, LoopSplits &splits) {
    const MarkedDims &marked = problem.marks[op.mark];
    for (size_t d = 0; d < marked.size(); ++d)
      if (marked[d] && marked[d]->split())
        splits[rule.results[0][d].loop] = *marked[d];
    if (isOpen(op.operands[0]))
      return;
    for (size_t d = 0; d < marked.size(); ++d)
      if (!marked[d])
        propose(splits, rule.results[0][d].loop, draft.of(op.operands[0]).dims[d], {});
  }

  // The sharding of the parameter of which the tensor is the gradient, or a term of the gradient.
  std::optional<ShardingId> gradientTarget(TensorId tensor) const {
    for (const Use &use : problem.tensors[tensor].uses) {
      const ProblemOp &op = problem.ops[use.op];
      std::optional<ShardingId> found;
      if (op.kind == OpKind::Return) {
        const NameId name = problem.results[use.operand].follows;
        found = name < 0 ? std::nullopt : named[name];
      } else if (op.kind == OpKind::Add) {
        found = gradientTarget(op.results[0]);
      }
      if (found)
        return found;
    }
    return std::nullopt;
  }

  OpSharding chooseByRule(const ProblemOp &op) {
    Axes passed = passedAxes(op);
    const LoopSplits splits = chooseSplits(op, passed);
    // A mark may split a loop over an axis of a partial sum.
    std::erase_if(passed, [&](const std::string &axis) { return usesAxis(splits, axis); });
    return shardOp(problem, op, splits, passed);
  }

  // ---- results -----------------------------------------------------------------------------------------------------

  void visitReturn(OpId id) {
    for (size_t i = 0; i < problem.results.size(); ++i)
      if (problem.results[i].gradient)
        gradients[problem.results[i].follows].push_back(static_cast<int>(i));
    for (size_t i = 0; i < problem.results.size(); ++i) {
      const Result &result = problem.results[i];
      const TensorId tensor = at(problem.ops[id].operands[i]);
      const TensorId taken = use(tensor, draft.intern(requiredOf(id, result, tensor)), id);
      if (result.gradient) // mark the reshards that finish a parameter's gradient
        for (TensorId t = taken; t != tensor && draft.isReshard(draft.makerOf(t));
             t = draft.operandsOf(draft.makerOf(t))[0])
          draft.setFinishesGradient(draft.makerOf(t));
      draft.setOperand(id, i, taken);
    }
  }

  Sharding requiredOf(OpId id, const Result &result, TensorId tensor) const {
    const Sharding &current = draft.of(tensor);
    Sharding required = Sharding::replicated(shapeOf(tensor));
    if (result.follows >= 0 && named[result.follows])
      if (const Sharding &known = draft.sharding(*named[result.follows]); known.dims.size() == required.dims.size())
        required = known;
    if (result.mayBePartial) {
      required.partialAxes = current.partialAxes;
      required.partialKind = current.partialKind;
    }
    // A gradient is reduced once per iteration over the axes over which all its stages leave it partial and that do not
    // split the parameter.
    if (result.gradient) {
      const Axes common = partialInAllStages(id, result.follows);
      std::erase_if(required.partialAxes,
                    [&](const std::string &axis) { return !contains(common, axis) || required.splitsOver(axis); });
    }
    return required;
  }

  // Axes over which every term of a parameter's gradient is partial (a tied parameter has a term in each of its
  // stages).
  Axes partialInAllStages(OpId id, NameId parameter) const {
    std::optional<Axes> common;
    for (int i : gradients[parameter]) {
      const Axes &axes = draft.of(draft.operandsOf(id)[i]).partialAxes;
      if (common)
        std::erase_if(*common, [&](const std::string &axis) { return !contains(axes, axis); });
      else
        common = axes;
    }
    return common.value_or(Axes());
  }
};

} // namespace

ShardingSolution assign(const ShardingProblem &problem, const DecidedOps &decided, std::vector<bool> *expected) {
  return Assigner(problem, decided, expected).run();
}

} // namespace cleave::partitioner
