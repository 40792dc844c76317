// Emits the local functions of one class of equal ranks.
#pragma once
#include "partitioner/apply/LocalPrograms.h"
#include "partitioner/apply/Localise.h"
#include "partitioner/apply/Segments.h"
#include "partitioner/apply/WorkingCopies.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace cleave::partitioner {

/// A metric ("loss", "weight", "correct", "loss.1", ...) or gradient of the step, and the axes over which it is still
/// partial.
struct ReducedResult {
  std::string name;
  mlir::RankedTensorType type; // global
  mlir::Value value;           // in @train or @eval
  std::vector<std::string> partialAxes;
  std::vector<int64_t> positions; // positions that compute a term or own the parameter
  std::vector<int64_t> makers;    // positions that compute a term, one entry per term; the value is zero at the others
};

/// Data shared by all classes: the annotated module, its segmentation, and the owners. A position is a coordinate on
/// axis pp: the ranks that run the same stages.
struct StepInfo {
  mlir::func::FuncOp train, update, eval, weights; // null if the step has none
  Segmentation trainCut, evalCut, weightsCut;
  std::vector<ReducedResult> metrics, gradients, evalMetrics; // metrics: of @train
  std::vector<ReducedResult> weightMetrics;                   // of @weights
  std::map<std::string, std::vector<int64_t>> owners;         // parameter or buffer -> positions that own it, in order
  std::map<std::string, int64_t> homes;                       // parameter or buffer -> the first stage that uses it
  llvm::SmallVector<mlir::BlockArgument> unread; // parameters and buffers for checkpoints alone: no op reads them
  /// Gradients that the ranks of dp sum and scatter once per iteration (ZeRO stage 1), and the sharding that @update
  /// reads.
  std::map<std::string, Sharding> scattered;
  mlir::Type reduceType; // type of gradient reductions over dp; null: the gradients' types
  const Decisions *strategy = nullptr;

  /// How many terms of a parameter's gradient the stages of each position compute.
  std::map<std::pair<int64_t, std::string>, int64_t> terms;

  /// The slot in which the gradient of a parameter is accumulated. If the gradient is scattered, @update reads another
  /// slot.
  std::string sumName(const std::string &parameter) const;
};

StepInfo describeStep(mlir::ModuleOp annotated, const Decisions &strategy);

/// Emits every segment of `rankClass` into `module` and stores their symbols in `rankClass.functions`.
void emitClass(const StepInfo &info, mlir::ModuleOp module, RankClass &rankClass, const std::vector<int64_t> &coords);

/// Emits the class's update segment.
void emitUpdate(const StepInfo &info, mlir::ModuleOp module, RankClass &rankClass, const std::vector<int64_t> &coords);

class LocalFunction;

/// Emits and finishes the segment before the microbatches: sets accumulated metrics and gradients to zero, and converts
/// parameters to the types and layouts listed in `copies`.
void emitBegin(const StepInfo &info, LocalFunction &local, RankClass &rankClass, const WorkingCopies &copies,
               bool eval);

/// Emits the segment after those of @weights: reduces their metrics over the ranks.
void emitReduceWeights(const StepInfo &info, mlir::ModuleOp module, RankClass &rankClass,
                       const std::vector<int64_t> &coords);

/// Emits the segment after the microbatches: reduces gradients and metrics over the ranks.
void emitReduce(const StepInfo &info, mlir::ModuleOp module, RankClass &rankClass, const std::vector<int64_t> &coords,
                bool eval);

/// Builds one local function. Arguments and results are named slots, added on demand. Types and attributes are set when
/// the function is finished, because MLIR never frees their lists.
class LocalFunction {
public:
  LocalFunction(mlir::ModuleOp module, const RankClass &rankClass, SegmentId segment, const Mesh &mesh,
                const std::vector<int64_t> &coords);

  mlir::OpBuilder builder;
  Localiser localiser;
  mlir::func::FuncOp func;

  /// The argument for slot (kind, name), created on first use; `global`: the annotated value it is a piece of.
  mlir::Value slot(ir::SlotKind kind, const std::string &name, mlir::Value global);
  mlir::Value slot(ir::SlotKind kind, const std::string &name, mlir::RankedTensorType type);
  /// The slot of an argument of the annotated function.
  mlir::Value slot(mlir::BlockArgument global);
  /// Returns `value` in slot (kind, name).
  void returns(ir::SlotKind kind, const std::string &name, mlir::Value value);
  /// Finishes the function. Erases an empty function and returns false.
  bool finish(RankClass &rankClass);

private:
  SegmentId segment;
  std::map<std::pair<ir::SlotKind, std::string>, mlir::Value> arguments;
  llvm::SmallVector<mlir::NamedAttrList> argumentAttributes;
  std::vector<std::tuple<ir::SlotKind, std::string, mlir::Value>> results;
};

} // namespace cleave::partitioner
