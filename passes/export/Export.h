// Converts lowered local functions and schedules to the bytes of a plan file.
#pragma once
#include "partitioner/apply/LocalPrograms.h"
#include "passes/CompileOptions.h"
#include "passes/codegen/Codegen.h"
#include "passes/export/ProgramBuilder.h"
#include "passes/export/SendWaits.h"
#include "passes/export/Tables.h"
#include "passes/overlap/Overlap.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

#include <cstdint>
#include <vector>

namespace cleave::passes {

/// A local function and the segment that it implements.
struct NamedFunction {
  partitioner::SegmentId segment;
  mlir::func::FuncOp function;
};

/// The functions that the ranks of a class run, each once, in schedule order.
struct ClassFunctions {
  std::vector<NamedFunction> training, evaluation;
};

/// The functions of every class of `applied`, in class order.
std::vector<ClassFunctions> functionsOf(const partitioner::LocalPrograms &applied);
llvm::SmallVector<mlir::func::FuncOp> bare(llvm::ArrayRef<NamedFunction> list);

/// Builds a plan. `applied` and `options` must outlive it. `packs`: whether its memory is packed tightly.
class PlanBuilder {
public:
  PlanBuilder(const partitioner::LocalPrograms &applied, const CompileOptions &options, Target target,
              CollectiveStreams streams, bool packs);

  /// Adds the program of a rank class from its functions, which consist of library calls and fusions. Throws userError,
  /// naming the op and the user's source line, if an op has neither a library step nor a kernel, and if the program
  /// needs more memory than any machine has.
  void addProgram(const partitioner::RankClass &rankClass, const ClassFunctions &functions);
  /// Call after the last program: places the slots of all programs, and adds the tables that programs share and the
  /// streams of GPU plans. Throws userError as addProgram.
  void link();
  /// Adds the machine code of all kernels (unless options.code is false) and their declarations.
  void addCode();
  /// The sealed plan file.
  std::vector<uint8_t> bytes() const;

private:
  const partitioner::LocalPrograms &applied;
  const CompileOptions &options;
  const Target target;
  const CollectiveStreams streams;
  const bool packs;
  plan::PlanT plan;
  Tables tables;
  KernelBuilder kernels;
  const SendWaits training, evaluation;
  std::vector<std::unique_ptr<ProgramBuilder>> programs;
};

} // namespace cleave::passes
