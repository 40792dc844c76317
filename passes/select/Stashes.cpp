// Stashed values, before selection: unused ones are removed, and some are stashed transposed. Attention can write any
// strides, but a stashed tensor is row-major. If the forward pass transposes attention's result for a projection and
// the backward pass transposes it again for the projection's gradient, both would copy. With the transposed tensor
// stashed, neither does.
#include "ir/dist/Dist.h"
#include "ir/graph/Graph.h"
#include "passes/select/Selection.h"
#include "passes/simplify/Simplify.h"

#include "llvm/ADT/BitVector.h"

#include <set>

using namespace mlir;

namespace cleave::passes {

namespace {

/// The transposition that is the only use of a value besides being returned; null otherwise.
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

/// The transposition to stash instead of a result, if a library can write in that order; null otherwise.
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

/// A function whose arguments change. Attributes and type are written once, at the end, because MLIR keeps every
/// attribute list and function type in memory for ever.
class Arguments {
public:
  explicit Arguments(func::FuncOp function) : function(function) {
    for (BlockArgument argument : function.getArguments()) {
      const unsigned index = argument.getArgNumber();
      attributes.emplace_back(function_interface_impl::getArgAttrs(function, index));
      if (ir::argumentKind(function, index) == ir::SlotKind::Stash)
        stashes[ir::argumentText(function, index, ir::attr::name)] = index;
    }
  }

  /// The argument that reads a stash; null if there is none.
  BlockArgument stash(StringRef name) {
    auto found = stashes.find(name);
    return found == stashes.end() ? BlockArgument() : function.getArgument(found->second);
  }

  NamedAttrList &of(BlockArgument argument) { return attributes[argument.getArgNumber()]; }

  void write() {
    Block &body = function.front();
    function.setFunctionType(
        FunctionType::get(function.getContext(), body.getArgumentTypes(), body.getTerminator()->getOperandTypes()));
    SmallVector<DictionaryAttr> dictionaries;
    for (NamedAttrList &list : attributes)
      dictionaries.push_back(list.getDictionary(function.getContext()));
    function.setAllArgAttrs(dictionaries);
  }

private:
  func::FuncOp function;
  SmallVector<NamedAttrList> attributes;
  llvm::StringMap<unsigned> stashes; // by name
};

/// Makes the argument hold the result of `stashed` instead of its operand, and adapts the argument's users.
void readTransposed(BlockArgument argument, NamedAttrList &attributes, ir::TransposeOp stashed) {
  const ArrayRef<int64_t> permutation = stashed.getPermutation();
  SmallVector<int64_t> inverse(permutation.size());
  for (auto [to, from] : llvm::enumerate(permutation))
    inverse[static_cast<size_t>(from)] = static_cast<int64_t>(to);
  const SmallVector<Operation *> users(argument.getUsers());
  argument.setType(stashed.getType());
  OpBuilder b = OpBuilder::atBlockBegin(argument.getOwner());
  auto asBefore = ir::TransposeOp::create(b, stashed.getLoc(), argument, inverse);
  ir::copyOrigin(stashed, asBefore);
  for (auto [of, ofOp] : {std::pair<StringRef, StringRef>(dist::attr::sharding, dist::attr::shardings),
                          std::pair<StringRef, StringRef>(dist::attr::global, dist::attr::globals)}) {
    if (Attribute attribute = attributes.erase(of))
      asBefore->setAttr(ofOp, b.getArrayAttr({attribute}));
    if (auto list = stashed->getAttrOfType<ArrayAttr>(ofOp))
      attributes.set(of, list[0]);
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
}

} // namespace

void layOutStashes(ArrayRef<func::FuncOp> functions) {
  std::vector<Arguments> arguments(functions.begin(), functions.end());
  for (size_t i = 0; i < functions.size(); ++i) {
    func::FuncOp function = functions[i];
    for (OpOperand &returned : function.front().getTerminator()->getOpOperands()) {
      const unsigned index = returned.getOperandNumber();
      if (ir::resultKind(function, index) != ir::SlotKind::Stash)
        continue;
      ir::TransposeOp transpose = stashedInstead(returned.get());
      if (!transpose)
        continue;
      returned.set(transpose.getResult());
      for (size_t later = i + 1; later < functions.size(); ++later)
        if (BlockArgument argument = arguments[later].stash(ir::resultText(function, index, ir::attr::name)))
          readTransposed(argument, arguments[later].of(argument), transpose);
    }
  }
  for (Arguments &list : arguments)
    list.write();
}

void dropUnreadStashes(ArrayRef<func::FuncOp> functions) {
  std::set<StringRef> read;
  // In reverse order, because removing a value also removes its reads.
  for (func::FuncOp function : llvm::reverse(functions)) {
    Operation *end = function.front().getTerminator();
    llvm::BitVector unread(function.getNumResults());
    for (unsigned i = 0; i < function.getNumResults(); ++i)
      if (ir::resultKind(function, i) == ir::SlotKind::Stash &&
          !read.count(ir::resultText(function, i, ir::attr::name)))
        unread.set(i);
    end->eraseOperands(unread);
    (void)function.eraseResults(unread);
    eraseDeadOps(function);
    for (BlockArgument argument : function.getArguments())
      if (!argument.use_empty() && ir::argumentKind(argument) == ir::SlotKind::Stash)
        read.insert(ir::argumentText(argument, ir::attr::name));
  }
}

} // namespace cleave::passes
