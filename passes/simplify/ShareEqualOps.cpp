// Common subexpressions and dead ops. Unlike MLIR's pass, which compares all attributes, this ignores the module path.
#include "passes/rewrite/Values.h"
#include "passes/simplify/Simplify.h"

#include "llvm/ADT/Hashing.h"

#include <unordered_set>

using namespace mlir;

namespace cleave::passes {
namespace {

/// The operands, in a canonical order if the op commutes.
llvm::SmallVector<Value> orderedOperands(Operation *op) {
  llvm::SmallVector<Value> operands(op->getOperands());
  if (op->hasTrait<OpTrait::IsCommutative>())
    llvm::sort(operands, [](Value x, Value y) { return x.getAsOpaquePointer() < y.getAsOpaquePointer(); });
  return operands;
}

/// Discardable attributes, without the layer and, if the op has operands, the module path.
llvm::SmallVector<NamedAttribute> placing(Operation *op) {
  llvm::SmallVector<NamedAttribute> attributes(op->getDiscardableAttrs());
  llvm::erase_if(attributes, [op](NamedAttribute attribute) {
    return attribute.getName() == ir::attr::layer ||
           (attribute.getName() == ir::attr::path && op->getNumOperands() != 0);
  });
  return attributes; // MLIR sorts them by name
}

struct Hash {
  size_t operator()(Operation *op) const {
    auto operands = orderedOperands(op);
    llvm::hash_code hash = llvm::hash_combine(op->getName().getAsOpaquePointer(), op->hashProperties(),
                                              llvm::hash_combine_range(op->result_type_begin(), op->result_type_end()));
    for (Value operand : operands)
      hash = llvm::hash_combine(hash, operand.getAsOpaquePointer());
    for (NamedAttribute attribute : placing(op)) // otherwise equal constants of all layers would have equal hashes
      hash = llvm::hash_combine(hash, hash_value(attribute));
    return hash;
  }
};

struct Equal {
  bool operator()(Operation *x, Operation *y) const {
    return x->getName() == y->getName() && x->getResultTypes() == y->getResultTypes() &&
           orderedOperands(x) == orderedOperands(y) &&
           x->getName().compareOpProperties(x->getPropertiesStorage(), y->getPropertiesStorage()) &&
           placing(x) == placing(y);
  }
};

} // namespace

bool shareEqualOps(func::FuncOp function) {
  std::unordered_set<Operation *, Hash, Equal> seen(function.front().getOperations().size());
  bool changed = false;
  for (Operation &op : llvm::make_early_inc_range(function.front().without_terminator())) {
    if (op.getNumRegions() != 0 || !isMemoryEffectFree(&op))
      continue;
    auto [first, isNew] = seen.insert(&op);
    if (isNew)
      continue;
    op.replaceAllUsesWith(*first);
    op.erase();
    changed = true;
  }
  return changed;
}

void eraseDeadOps(func::FuncOp function) {
  // Iterates over the block itself: a reversed range of its iterators would keep a reference to an erased op.
  for (Operation &op : llvm::make_early_inc_range(llvm::reverse(function.front())))
    if (isOpTriviallyDead(&op))
      op.erase();
}

} // namespace cleave::passes
