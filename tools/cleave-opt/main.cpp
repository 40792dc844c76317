// cleave-opt: reads IR, runs passes, prints IR. MLIR's own driver with Cleave's dialects and passes.
#include "ir/dist/Dist.h"
#include "ir/graph/Graph.h"
#include "passes/pipeline/Register.h"
#include "runtime/base/Error.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Tools/mlir-opt/MlirOptMain.h"
#include "mlir/Transforms/Passes.h"

int main(int argc, char **argv) {
  mlir::DialectRegistry registry;
  registry.insert<cleave::ir::CleaveDialect, cleave::dist::DistDialect, mlir::func::FuncDialect>();
  mlir::registerTransformsPasses(); // canonicalize, cse, symbol-dce, ...
  cleave::passes::registerPasses();
  const bool good = succeeded(mlir::MlirOptMain(argc, argv, "Cleave's optimizer driver\n", registry));
  return static_cast<int>(good ? cleave::Status::Success : cleave::Status::User);
}
