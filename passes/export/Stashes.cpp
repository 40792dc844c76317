// Layouts of what functions hand on to later ones, before selection: attention writes any strides, but a tensor that
// is stashed keeps its own. A forward pass that turns attention's result for a projection, and a backward pass that
// turns it again for the projection's gradient, would both copy; stashed as it was turned, neither does.
#include "ir/dist/Dist.h"
#include "ir/graph/Graph.h"
#include "passes/export/SelectDetail.h"

using namespace mlir;

namespace cleave::passes {

namespace {

/// The transposition that is all that is done with a value besides returning it; null where there is more, or nothing.
ir::TransposeOp onlyTranspose(Value value) {
  ir::TransposeOp found;
  for (Operation *user : value.getUsers()) {
    if (isa<func::ReturnOp>(user))
      continue;
    auto transpose = dyn_cast<ir::TransposeOp>(user);
    if (!transpose || found)
      return {};
    found = transpose;
  }
  return found;
}

/// What is stashed in place of a result that a library can as well write in that order; null where it stays.
ir::TransposeOp stashedInstead(Value value) {
  auto attention = value.getDefiningOp<ir::AttentionOp>();
  const bool heads = attention && value == attention.getResult();
  if (!heads && !value.getDefiningOp<ir::MatmulOp>())
    return {};
  ir::TransposeOp transpose = onlyTranspose(value);
  if (!transpose)
    return {};
  auto view = beforeOp(Strided::contiguous(sizesOf(transpose.getResult())), transpose);
  return view && (heads ? fitHeads(*view) : fitMatrix(*view)) ? transpose : ir::TransposeOp();
}

/// The argument that reads a stash; null where none does.
BlockArgument stashArgument(func::FuncOp function, StringRef name) {
  for (BlockArgument argument : function.getArguments())
    if (argumentText(function, argument.getArgNumber(), ir::attr::kind) == "stash" &&
        argumentText(function, argument.getArgNumber(), ir::attr::name) == name)
      return argument;
  return {};
}

void refreshType(func::FuncOp function) {
  Block &body = function.front();
  function.setFunctionType(
      FunctionType::get(function.getContext(), body.getArgumentTypes(), body.getTerminator()->getOperandTypes()));
}

/// The argument now holds what `stashed` made of what it held.
void readTransposed(BlockArgument argument, ir::TransposeOp stashed) {
  auto function = cast<func::FuncOp>(argument.getOwner()->getParentOp());
  const ArrayRef<int64_t> permutation = stashed.getPermutation();
  SmallVector<int64_t> inverse(permutation.size());
  for (auto [to, from] : llvm::enumerate(permutation))
    inverse[static_cast<size_t>(from)] = static_cast<int64_t>(to);
  const SmallVector<Operation *> users(argument.getUsers());
  argument.setType(stashed.getType());
  OpBuilder b(&function.front(), function.front().begin());
  auto asBefore = ir::TransposeOp::create(b, stashed.getLoc(), argument, inverse);
  if (Attribute path = stashed->getAttr(ir::attr::path))
    asBefore->setAttr(ir::attr::path, path);
  const unsigned index = argument.getArgNumber();
  for (auto [of, ofOp] : {std::pair<StringRef, StringRef>(dist::attr::sharding, dist::attr::shardings),
                          std::pair<StringRef, StringRef>(dist::attr::global, dist::attr::globals)}) {
    if (Attribute attribute = function.getArgAttr(index, of))
      asBefore->setAttr(ofOp, b.getArrayAttr({attribute}));
    function.removeArgAttr(index, of);
    if (auto list = stashed->getAttrOfType<ArrayAttr>(ofOp))
      function.setArgAttr(index, of, list[0]);
  }
  for (Operation *user : users) {
    auto transpose = dyn_cast<ir::TransposeOp>(user);
    if (transpose && transpose.getPermutation() == permutation) {
      transpose.getResult().replaceAllUsesWith(argument);
      transpose.erase();
    } else {
      user->replaceUsesOfWith(argument, asBefore.getResult());
    }
  }
  refreshType(function);
}

} // namespace

void layOutStashes(ArrayRef<func::FuncOp> functions) {
  for (size_t i = 0; i < functions.size(); ++i) {
    func::FuncOp function = functions[i];
    for (OpOperand &returned : function.front().getTerminator()->getOpOperands()) {
      const unsigned index = returned.getOperandNumber();
      if (resultText(function, index, ir::attr::kind) != "stash")
        continue;
      ir::TransposeOp transpose = stashedInstead(returned.get());
      if (!transpose)
        continue;
      returned.set(transpose.getResult());
      refreshType(function);
      for (func::FuncOp later : functions.drop_front(i + 1))
        if (BlockArgument argument = stashArgument(later, resultText(function, index, ir::attr::name)))
          readTransposed(argument, transpose);
    }
  }
}

} // namespace cleave::passes
