// One gradient rule per op, in a table that the files Elementwise.cpp, Shape.cpp, LinearAlgebra.cpp and NormAndLoss.cpp
// fill.
#pragma once
#include "passes/rewrite/Emitter.h"

#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/ADT/StringSet.h"

namespace cleave::passes {

/// The gradients gathered so far, while the forward ops are walked in reverse. Terms that arise in one pipeline stage are
/// added there, so that one sum a value and stage travels over a cut, the way back that the value came.
class Adjoints {
public:
  Adjoints(mlir::OpBuilder builder, llvm::DenseSet<mlir::Value> active) : e(builder), active(std::move(active)) {}

  /// Emits ops of the rule that is running.
  Emitter e;

  /// Whether a gradient with respect to `value` leads to a trainable parameter.
  bool needs(mlir::Value value) const { return active.contains(value); }
  /// Adds `gradient` (of the value's type) to the value's, in the stage of the emitter's origin.
  void add(mlir::Value value, mlir::Value gradient);
  /// Adds a gradient that was computed in f32, rounded once to the value's type: a formula of several steps in a half
  /// type would round each (1 - y * y near y = 1 has no digits left). Its operands come from `e.toF32`.
  void addRounded(mlir::Value value, mlir::Value gradient) {
    add(value, e.cast(gradient, tensorType(value).getElementType()));
  }
  /// Adds what `make` returns where it is needed.
  template <class Make> void contribute(mlir::Value value, Make make) {
    if (needs(value))
      add(value, make());
  }
  /// The sum of what was added, null where nothing was.
  mlir::Value gradientOf(mlir::Value value);

private:
  struct Term {
    int64_t stage;
    mlir::Value sum;
  };
  /// Emits with the marks of what made `value`, in `stage`.
  Emitter emitterOf(mlir::Value value, int64_t stage) const;

  llvm::DenseSet<mlir::Value> active;
  llvm::DenseMap<mlir::Value, llvm::SmallVector<Term, 1>> gradients; ///< by stage, in the order of arrival
  llvm::DenseMap<std::pair<mlir::Value, int64_t>, mlir::Value> relays;
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
