// One gradient rule per op, in a table filled by Elementwise.cpp, Shape.cpp, LinearAlgebra.cpp and NormAndLoss.cpp.
#pragma once
#include "passes/rewrite/Values.h"

#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/ADT/StringSet.h"

namespace cleave::passes {

/// The gradients accumulated so far during the reverse walk. Terms computed in one pipeline stage are added in that
/// stage, so that only one sum per value and stage crosses a stage boundary, in the opposite direction of the forward
/// value.
class Adjoints {
public:
  Adjoints(mlir::OpBuilder builder, llvm::DenseSet<mlir::Value> active) : e(builder), active(std::move(active)) {}

  /// Emits ops of the current rule.
  GraphBuilder e;

  /// Whether a trainable parameter needs the gradient with respect to `value`.
  bool needs(mlir::Value value) const { return active.contains(value); }
  /// Adds `gradient` (of the value's type) to the value's gradient, in the stage of the emitter's origin.
  void add(mlir::Value value, mlir::Value gradient);
  /// Adds a gradient computed in f32, rounded once to the value's type. A formula of several steps in a half type would
  /// round each step (1 - y * y near y = 1 would lose all digits). Get the operands by `e.toF32`.
  void addRounded(mlir::Value value, mlir::Value gradient) { add(value, e.castLike(gradient, value)); }
  /// Adds the result of `make` if the gradient of `value` is needed.
  template <class Make> void contribute(mlir::Value value, Make make) {
    if (needs(value))
      add(value, make());
  }
  /// The sum of all contributions, null if there is none.
  mlir::Value gradientOf(mlir::Value value);

private:
  struct Term {
    int64_t stage;
    mlir::Value sum;
  };
  /// An emitter with the attributes of the op that defines `value`, in `stage`.
  GraphBuilder builderOf(mlir::Value value, int64_t stage) const;

  llvm::DenseSet<mlir::Value> active;
  llvm::DenseMap<mlir::Value, llvm::SmallVector<Term, 1>> gradients; ///< by stage, in the order of arrival
  llvm::DenseMap<std::pair<mlir::Value, int64_t>, mlir::Value> relays;
};

/// Gradients of an op's results; null for a result without one.
using Grads = llvm::ArrayRef<mlir::Value>;

class RuleTable {
public:
  using Rule = std::function<void(mlir::Operation *, Grads, Adjoints &)>;

  /// `rule` may assume that the gradient of the first result is not null, and that all others are null.
  template <class Op> void on(void (*rule)(Op, Grads, Adjoints &)) {
    rules[Op::getOperationName()] = [rule](mlir::Operation *op, Grads grads, Adjoints &adjoints) {
      rule(mlir::cast<Op>(op), grads, adjoints);
    };
  }
  /// The op's results are not differentiable in its operands: no gradient passes, and this is no error.
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
/// The table with all rules.
const RuleTable &gradientRules();

} // namespace cleave::passes
