// Writes added ops, operands, order and attributes.
#include "partitioner/annotate/WriteSolution.h"

#include "ir/dist/Dist.h"
#include "ir/graph/Graph.h"

using namespace mlir;

namespace cleave::partitioner {
namespace {

class Writer {
public:
  Writer(func::FuncOp func, const ShardingSolution &solution)
      : func(func), solution(solution), builder(func.getContext()), texts(solution.table.size()) {
    values.append(func.args_begin(), func.args_end());
    for (Operation &op : func.getBody().front()) {
      ops.push_back(&op);
      values.append(op.result_begin(), op.result_end());
    }
    ops.resize(ops.size() + solution.added.size());
    values.resize(values.size() + solution.added.size());
  }

  void write() {
    for (size_t i = 0; i < texts.size(); ++i)
      texts[i] = dist::ShardingAttr::get(func.getContext(), solution.table[i].str());
    arrange();
    for (OpId op = 0; op < (OpId)ops.size(); ++op)
      for (auto [i, operand] : llvm::enumerate(solution.operandsOf(op)))
        ops[op]->setOperand(i, values[operand]);
    annotate();
    markReshards();
  }

private:
  func::FuncOp func;
  const ShardingSolution &solution;
  OpBuilder builder;
  SmallVector<Operation *> ops; // by number: those of the function, then added ones
  SmallVector<Value> values;    // by number of the tensor
  std::vector<dist::ShardingAttr> texts;

  static constexpr llvm::StringLiteral marks[] = {ir::attr::path, ir::attr::layer, ir::attr::stage, ir::attr::phase,
                                                  ir::attr::parameter};

  dist::ShardingAttr textOf(TensorId tensor) const { return texts[solution.shardings[tensor]]; }

  // Brings ops into the solution's order, and creates those that it adds.
  void arrange() {
    Block &block = func.getBody().front();
    auto next = block.begin();
    for (OpId id : solution.order) {
      builder.setInsertionPoint(&block, next);
      if (solution.isAdded(id))
        make(id);
      else if (next == ops[id]->getIterator())
        ++next;
      else
        ops[id]->moveBefore(&block, next);
    }
  }

  // Operands are set when all ops exist. The operand of a reshard exists already, because it comes before the reshard
  // in the order.
  void make(OpId id) {
    const AddedOp &added = solution.addedOp(id);
    ops[id] = added.copied < 0 ? makeReshard(added, solution.resultOf(id)) : builder.clone(*ops[added.copied]);
    values[solution.resultOf(id)] = ops[id]->getResult(0);
  }

  Operation *makeReshard(const AddedOp &added, TensorId result) {
    Operation *where = ops[added.marks];
    Value input = values[added.operands[0]];
    auto reshard = dist::ReshardOp::create(builder, where->getLoc(), input.getType(), input, textOf(added.operands[0]),
                                           textOf(result));
    for (StringRef name : marks)
      if (Attribute attribute = where->getAttr(name))
        reshard->setAttr(name, attribute);
    if (added.finishesGradient)
      ir::setRole(reshard, ir::role::gradients);
    return reshard;
  }

  void annotate() {
    auto *context = func.getContext();
    SmallVector<DictionaryAttr> ofArguments;
    for (unsigned i = 0; i < func.getNumArguments(); ++i) {
      NamedAttrList attributes(function_interface_impl::getArgAttrs(func, i));
      attributes.set(dist::attr::sharding, textOf(i));
      ofArguments.push_back(attributes.getDictionary(context));
    }
    func.setAllArgAttrs(ofArguments);
    TensorId tensor = static_cast<TensorId>(func.getNumArguments());
    for (Operation *op : ops) { // results are numbered in the order of their ops
      SmallVector<Attribute> shardings;
      for (unsigned r = 0; r < op->getNumResults(); ++r)
        shardings.push_back(textOf(tensor++));
      if (!shardings.empty())
        op->setAttr(dist::attr::shardings, ArrayAttr::get(context, shardings));
    }
  }

  // Reshards before the return have no stage yet: they take the marks of the op whose result they reshard.
  void markReshards() {
    for (OpId id : solution.order) {
      Operation *op = ops[id], *maker = solution.isReshard(id) ? op->getOperand(0).getDefiningOp() : nullptr;
      if (!maker || op->hasAttr(ir::attr::stage))
        continue;
      for (StringRef name : marks)
        if (maker->hasAttr(name) && !op->hasAttr(name))
          op->setAttr(name, maker->getAttr(name));
    }
  }
};

} // namespace

void writeSolution(func::FuncOp func, const ShardingSolution &solution) { Writer(func, solution).write(); }

} // namespace cleave::partitioner
