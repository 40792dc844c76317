// See Register.h.
#include "passes/pipeline/Register.h"

#include "passes/decompose/Decompose.h"
#include "passes/differentiate/Differentiate.h"
#include "passes/fuse/Fuse.h"
#include "passes/layout/Layout.h"
#include "passes/optimizer/Optimizer.h"
#include "passes/overlap/Overlap.h"
#include "passes/pipeline/PartitionPasses.h"
#include "passes/precision/Precision.h"
#include "passes/recompute/Recompute.h"
#include "passes/simplify/Simplify.h"

#include "mlir/Pass/PassRegistry.h"

namespace cleave::passes {

#define GEN_PASS_REGISTRATION
#include "passes/Passes.h.inc"

void registerPasses() {
  static const bool once = [] {
    registerCleavePasses();
    return true;
  }();
  (void)once;
}

} // namespace cleave::passes
