// Lowered local functions and schedules in, the bytes of a plan file out.
#pragma once
#include "partitioner/apply/Applied.h"
#include "passes/CompileOptions.h"
#include "passes/codegen/Codegen.h"
#include "passes/export/Tables.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

#include <cstdint>
#include <vector>

namespace cleave::passes {

/// A local function and the segment that it computes.
struct NamedFunction {
  std::string segment;
  mlir::func::FuncOp function;
};

/// What the ranks of a class run, each function once, in the order of their schedules.
struct ClassFunctions {
  std::vector<NamedFunction> training, evaluation;
};

/// The functions of every class of `applied`, in the order of its classes.
std::vector<ClassFunctions> functionsOf(const partitioner::Applied &applied);
llvm::SmallVector<mlir::func::FuncOp> bare(llvm::ArrayRef<NamedFunction> list);

/// A plan while it is built. `applied` and `options` outlive it.
class PlanBuilder {
public:
  PlanBuilder(const partitioner::Applied &applied, const CompileOptions &options, const std::string &target);

  /// The program of a class of ranks from its functions, which hold library calls and fusions. Throws userError where
  /// an op has no library step and no kernel, naming the op and the user's source line, and where no machine has the
  /// memory.
  void addProgram(const partitioner::RankClass &rankClass, const ClassFunctions &functions);
  /// After the last program: what programs refer to in common, and the streams of plans for GPUs.
  void link();
  /// Machine code of all kernels (unless options.code is false), and what they declare.
  void addCode();
  /// The sealed plan file.
  std::vector<uint8_t> bytes() const;

private:
  const partitioner::Applied &applied;
  const CompileOptions &options;
  plan::PlanT plan;
  Tables tables;
  KernelBuilder kernels;
};

} // namespace cleave::passes
