// One gradient rule per op, in a table that the files Elementwise.cpp, Shape.cpp, LinearAlgebra.cpp and NormAndLoss.cpp
// fill.
#pragma once
#include "passes/rewrite/Emitter.h"

#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/ADT/StringSet.h"

namespace cleave::passes {

/// The gradients gathered so far, while the forward ops are walked in reverse.
class Adjoints {
public:
  Adjoints(mlir::OpBuilder builder, llvm::DenseSet<mlir::Value> active) : e(builder), active(std::move(active)) {}

  /// Emits ops of the rule that is running.
  Emitter e;

  /// Whether a gradient with respect to `value` leads to a trainable parameter.
  bool needs(mlir::Value value) const { return active.contains(value); }
  /// Adds `gradient` (of the value's type) to the value's.
  void add(mlir::Value value, mlir::Value gradient);
  /// Adds what `make` returns where it is needed.
  template <class Make> void contribute(mlir::Value value, Make make) {
    if (needs(value))
      add(value, make());
  }
  /// The sum of what was added, null where nothing was.
  mlir::Value gradientOf(mlir::Value value) const { return gradients.lookup(value); }

private:
  llvm::DenseSet<mlir::Value> active;
  llvm::DenseMap<mlir::Value, mlir::Value> gradients;
};

/// Gradients of an op's results; null where a result has none.
using Grads = llvm::ArrayRef<mlir::Value>;

class RuleTable {
public:
  using Rule = std::function<void(mlir::Operation *, Grads, Adjoints &)>;

  /// `rule` may assume that grads of results it names in `required` (default: the first) are not null.
  template <class Op> void on(void (*rule)(Op, Grads, Adjoints &)) {
    rules[Op::getOperationName()] = [rule](mlir::Operation *op, Grads grads, Adjoints &adjoints) {
      rule(mlir::cast<Op>(op), grads, adjoints);
    };
  }
  /// Op has results that depend on its operands in no differentiable way: they carry no gradient, silently.
  template <class Op> void stop() { stops.insert(Op::getOperationName()); }

  const Rule *find(mlir::Operation *op) const;
  bool stopsAt(mlir::Operation *op) const { return stops.contains(op->getName().getStringRef()); }

private:
  llvm::StringMap<Rule> rules;
  llvm::StringSet<> stops;
};

void addElementwiseRules(RuleTable &table);
void addShapeRules(RuleTable &table);
void addLinearAlgebraRules(RuleTable &table);
void addNormAndLossRules(RuleTable &table);
/// All of them.
const RuleTable &gradientRules();

} // namespace cleave::passes
