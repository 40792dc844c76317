// Splits the rows as far as possible, and looks at what the solution moves and splits.
#include "partitioner/annotate/MixedRows.h"

#include "ir/graph/Graph.h"
#include "partitioner/annotate/ReadProblem.h"
#include "partitioner/sharding/Assign.h"
#include "partitioner/sharding/Messages.h"

using namespace mlir;

namespace cleave::partitioner {
namespace {

/// The number of rows of the inputs; 0 without inputs.
int64_t rowsOf(func::FuncOp function) {
  for (BlockArgument argument : function.getArguments())
    if (ir::argumentKind(argument) == ir::SlotKind::Input)
      if (const ArrayRef<int64_t> shape = ir::shapeOf(argument); !shape.empty())
        return shape[0];
  return 0;
}

Decisions aRankPerRow(int64_t rows) {
  Decisions strategy;
  strategy.mesh.axes = {{"dp", rows}, {"tp", 1}, {"pp", 1}};
  return strategy;
}

class Search {
public:
  Search(func::FuncOp function, bool exceptMeant)
      : exceptMeant(exceptMeant), problem(readProblem(function, aRankPerRow(rowsOf(function)), {}, Marks::Ignored)),
        solution(assign(problem)) {
    for (Operation &op : function.getBody().front())
      ops.push_back(&op);
    findOwn(function);
    findNeeded(function);
  }

  Operation *run() {
    for (const OpId id : solution.order)
      if (!problem.ops[originOf(id)].backward)
        if (Operation *found = solution.isReshard(id) ? ofReshard(id) : ofOp(id))
          return found;
    return nullptr;
  }

private:
  /// Finds the tensors that differ from row to row because they depend on an input or on random numbers of the rows,
  /// and the dimensions along which all elements of a tensor are equal.
  void findOwn(func::FuncOp function) {
    own.resize(problem.tensors.size());
    for (const ProblemTensor &tensor : problem.tensors)
      equal.push_back(llvm::map_to_vector(tensor.shape, [](int64_t size) { return size == 1; }));
    for (BlockArgument argument : function.getArguments())
      own[argument.getArgNumber()] = ir::argumentKind(argument) == ir::SlotKind::Input;
    for (size_t id = 0; id < problem.ops.size(); ++id) {
      const ProblemOp &op = problem.ops[id];
      auto random = dyn_cast<ir::RandomUniformOp>(ops[id]);
      const bool is =
          (random && !random.getShared()) || llvm::any_of(op.operands, [&](TensorId operand) { return own[operand]; });
      for (const TensorId result : op.results) {
        own[result] = is;
        for (size_t dim = 0; dim < equal[result].size(); ++dim)
          equal[result][dim] = equal[result][dim] || equalAlong(ops[id], op, result, dim);
      }
    }
  }

  /// Whether all elements of an op's result are known to be equal along a dimension.
  bool equalAlong(Operation *op, const ProblemOp &of, TensorId result, size_t dim) const {
    if (auto constant = dyn_cast<ir::ConstantOp>(op))
      return constant.getValue().isSplat();
    if (auto iota = dyn_cast<ir::IotaOp>(op))
      return dim != iota.getDim();
    if (auto broadcast = dyn_cast<ir::BroadcastOp>(op)) {
      const auto *from = llvm::find(broadcast.getDims(), static_cast<int64_t>(dim));
      return from == broadcast.getDims().end() ||
             equal[of.operands[0]][static_cast<size_t>(from - broadcast.getDims().begin())];
    }
    if (auto transpose = dyn_cast<ir::TransposeOp>(op))
      return equal[of.operands[0]][static_cast<size_t>(transpose.getPermutation()[dim])];
    if (isa<ir::ReshapeOp>(op)) // a dimension keeps its place if those before it, or those behind it, stay
      return equalAfterReshape(of.operands[0], result, dim);
    return (isElementwise(of.kind) || of.kind == OpKind::Mark || of.kind == OpKind::Slice) &&
           llvm::all_of(of.operands, [&](TensorId operand) { return equal[operand][dim]; });
  }
  bool equalAfterReshape(TensorId operand, TensorId result, size_t dim) const {
    if (llvm::all_of(equal[operand], [](bool one) { return one; }))
      return true;
    const ArrayRef<int64_t> from = problem.tensors[operand].shape, to = problem.tensors[result].shape;
    if (dim < from.size() && from.take_front(dim + 1) == to.take_front(dim + 1))
      return equal[operand][dim];
    const size_t behind = to.size() - dim;
    return behind <= from.size() && from.take_back(behind) == to.take_back(behind) &&
           equal[operand][from.size() - behind];
  }

  /// Finds the tensors that a row's results depend on. A prediction's scalar is a result of its batch.
  void findNeeded(func::FuncOp function) {
    needed.resize(problem.tensors.size());
    for (OpOperand &result : function.getBody().front().getTerminator()->getOpOperands())
      needed[problem.ops.back().operands[result.getOperandNumber()]] =
          ir::resultKind(function, result.getOperandNumber()) != ir::SlotKind::Output ||
          !ir::shapeOf(result.get()).empty();
    for (const ProblemOp &op : llvm::reverse(problem.ops))
      if (llvm::any_of(op.results, [&](TensorId result) { return needed[result]; }))
        for (const TensorId operand : op.operands)
          needed[operand] = true;
  }

  /// The op of the problem that is `id`, that `id` copies, or whose marks the reshard `id` has.
  OpId originOf(OpId id) const {
    while (solution.isAdded(id))
      id = solution.isReshard(id) ? solution.addedOp(id).marks : solution.addedOp(id).copied;
    return id;
  }

  static bool splitsRows(const DimSharding &dim) {
    return llvm::any_of(dim.factors, [](const Factor &factor) { return !factor.axes.empty(); });
  }
  static bool splitsRows(const Sharding &sharding) {
    return llvm::any_of(sharding.dims, [](const DimSharding &dim) { return splitsRows(dim); });
  }
  /// Whether rank r holds row r of a tensor, and nothing else.
  bool keepsRows(const Sharding &sharding) const {
    const bool first = !sharding.dims.empty() && !sharding.dims[0].factors.empty() &&
                       !sharding.dims[0].factors[0].axes.empty() &&
                       sharding.dims[0].factors[0].size == problem.mesh.ranks();
    return first && sharding.partialAxes.empty() &&
           llvm::none_of(llvm::drop_begin(sharding.dims), [](const DimSharding &dim) { return splitsRows(dim); });
  }
  /// Whether ranks get different parts of a tensor.
  bool splitsWhatDiffers(TensorId tensor, const Sharding &to) const {
    for (size_t dim = 0; dim < to.dims.size(); ++dim)
      if (splitsRows(to.dims[dim]) && !equal[tensor][dim])
        return true;
    return false;
  }
  bool isMeant(Operation *op) const { return exceptMeant && op && op->hasAttr(ir::attr::perMicrobatch); }

  /// A message between rows, or a share of a value that all ranks have computed.
  Operation *ofReshard(OpId id) const {
    const TensorId operand = solution.operandsOf(id)[0], tensor = solution.origin(operand, problem);
    if (!needed[tensor])
      return nullptr;
    const Sharding &from = solution.shardingOf(operand), &to = solution.shardingOf(solution.resultOf(id));
    const bool found = own[tensor] ? !messagesOf(problem.mesh, from, to, 32).empty()
                                   : !splitsRows(from) && splitsWhatDiffers(tensor, to);
    if (!found)
      return nullptr;
    Operation *maker = problem.tensors[tensor].op < 0 ? nullptr : ops[problem.tensors[tensor].op],
              *near = ops[originOf(id)];
    if (isa<func::ReturnOp>(near) && keepsRows(from)) // an output is gathered as it is
      return nullptr;
    if (isMeant(maker) || isMeant(near))
      return nullptr;
    return isa<func::ReturnOp>(near) ? maker : near;
  }

  /// A parameter, constant, index or shared random tensor with a row for each row of the batch.
  Operation *ofOp(OpId id) const {
    Operation *op = ops[originOf(id)];
    if (llvm::none_of(problem.ops[originOf(id)].results, [&](TensorId result) { return needed[result]; }))
      return nullptr;
    bool found = llvm::any_of(solution.operandsOf(id), [&](TensorId operand) {
      return operand < static_cast<TensorId>(problem.arguments.size()) && !own[operand] &&
             splitsRows(solution.shardingOf(operand));
    });
    if (problem.ops[originOf(id)].kind == OpKind::Free && op->getNumResults() == 1) {
      const TensorId result = solution.isAdded(id) ? solution.resultOf(id) : problem.ops[id].results[0];
      const Sharding &sharding = solution.shardingOf(result);
      if (auto iota = dyn_cast<ir::IotaOp>(op))
        found |= splitsRows(sharding.dims[iota.getDim()]);
      else if (auto constant = dyn_cast<ir::ConstantOp>(op))
        found |= !constant.getValue().isSplat() && splitsRows(sharding);
      else if (cast<ir::RandomUniformOp>(op).getShared())
        found |= splitsRows(sharding);
    }
    return found && !isMeant(op) && !isa<func::ReturnOp>(op) ? op : nullptr;
  }

  const bool exceptMeant;
  const ShardingProblem problem;
  const ShardingSolution solution;
  std::vector<Operation *> ops;         // of the problem
  std::vector<bool> own, needed;        // by tensor of the problem
  std::vector<SmallVector<bool>> equal; // by tensor and dimension: all elements along it are equal
};

} // namespace

Operation *opThatMixesRows(func::FuncOp function, bool exceptMeant) {
  return rowsOf(function) < 2 ? nullptr : Search(function, exceptMeant).run();
}

} // namespace cleave::partitioner
