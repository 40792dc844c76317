// See Register.h.
#include "passes/pipeline/Register.h"

#include "passes/decompose/Decompose.h"
#include "passes/differentiate/Differentiate.h"
#include "passes/fuse/Fuse.h"
#include "passes/layout/Layout.h"
#include "passes/optimizer/Optimizer.h"
#include "passes/pipeline/PartitionPasses.h"
#include "passes/precision/Precision.h"
#include "passes/simplify/Simplify.h"

#include "mlir/Pass/PassRegistry.h"

namespace cleave::passes {

void registerPasses() {
  static const bool once = [] {
    mlir::registerPass([] { return createDifferentiatePass(); });
    mlir::registerPass([] { return createDecomposePass(); });
    mlir::registerPass([] { return createBuildOptimizerPass(); });
    mlir::registerPass([] { return createPrecisionPass(); });
    mlir::registerPass([] { return createChannelsLastPass(); });
    mlir::registerPass([] { return createSimplifyPass(); });
    mlir::registerPass([] { return createAssignStagesPass(); });
    mlir::registerPass([] { return createAnnotatePass(); });
    mlir::registerPass([] { return createApplyPass(); });
    mlir::registerPass([] { return createFusePass(); });
    return true;
  }();
  (void)once;
}

} // namespace cleave::passes
