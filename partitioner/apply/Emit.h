// Emits the local functions of one class of equal ranks.
#pragma once
#include "partitioner/apply/Applied.h"
#include "partitioner/apply/Localise.h"
#include "partitioner/apply/Segments.h"
#include "partitioner/apply/WorkingCopies.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace cleave::partitioner {

/// A metric ("loss", "weight", "correct") or gradient of the step, and over which axes a rank's sum is still partial.
struct Total {
  std::string name;
  mlir::RankedTensorType type; // global
  mlir::Value value;           // in @train or @eval
  std::vector<std::string> partialAxes;
  std::vector<int64_t> stages; // that share it: where a term is made, and where its parameter lives
  std::vector<int64_t> makers; // where a term is made; in the other stages it is zero
};

/// What all classes share: the annotated module, its cut, and which stage owns what.
struct StepInfo {
  mlir::func::FuncOp train, update, eval;
  Segmentation trainCut, evalCut;
  std::vector<Total> metrics, gradients, evalMetrics;
  std::string unequalMetric;                          // why no plan can hold the metrics; empty: one can
  std::map<std::string, std::vector<int64_t>> owners; // parameter or buffer -> stages that hold it, in order
  mlir::Type reduceType;                              // in which gradients are summed over dp; null: each in its own
  const Strategy *strategy = nullptr;
};

StepInfo describeStep(mlir::ModuleOp annotated, const Strategy &strategy);

/// Emits every segment of `rankClass` into `module` and records their symbols in `rankClass.functions`.
void emitClass(const StepInfo &info, mlir::ModuleOp module, RankClass &rankClass, const std::vector<int64_t> &coords);

/// The class's update segment.
void emitUpdate(const StepInfo &info, mlir::ModuleOp module, RankClass &rankClass, const std::vector<int64_t> &coords);

class LocalFunction;

/// Fills and finishes the segment before the microbatches: metrics and gradients that add up begin at zero, and
/// parameters are copied to the type in which `copies` says they are used.
void emitBegin(const StepInfo &info, LocalFunction &local, RankClass &rankClass, const WorkingCopies &copies,
               bool eval);

/// The segment behind the microbatches: sums of gradients and metrics over the ranks.
void emitReduce(const StepInfo &info, mlir::ModuleOp module, RankClass &rankClass, const std::vector<int64_t> &coords,
                bool eval);

/// Builds one local function: arguments and results are named slots, added on demand. Their attributes and types are
/// the function's once it is finished: MLIR keeps every list of them that ever was.
class LocalFunction {
public:
  LocalFunction(mlir::ModuleOp module, const RankClass &rankClass, const std::string &segment, const Mesh &mesh,
                const std::vector<int64_t> &coords);

  mlir::OpBuilder builder;
  Localiser localiser;
  mlir::func::FuncOp func;

  /// The argument for slot (kind, name), made at first use; `global`: the annotated value it is a piece of.
  mlir::Value slot(const std::string &kind, const std::string &name, mlir::Value global);
  mlir::Value slot(const std::string &kind, const std::string &name, mlir::RankedTensorType type);
  /// The argument for the slot that an argument of the annotated function names.
  mlir::Value slot(mlir::BlockArgument global);
  /// Returns `value` in slot (kind, name).
  void returns(const std::string &kind, const std::string &name, mlir::Value value);
  /// Finishes the function; a function that does nothing is erased and false returned.
  bool finish(RankClass &rankClass);

private:
  std::string segment;
  std::map<std::pair<std::string, std::string>, mlir::Value> arguments;
  llvm::SmallVector<mlir::NamedAttrList> argumentAttributes;
  std::vector<std::tuple<std::string, std::string, mlir::Value>> results;
};

} // namespace cleave::partitioner
