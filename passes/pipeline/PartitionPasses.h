// The partitioner's phases as passes with options, for cleave-opt and IR tests. The pipeline calls the functions that
// they call, with the job's strategy.
#pragma once
#include <memory>

namespace mlir {
class Pass;
}

namespace cleave::passes {

// The passes and their options: passes/Passes.td.
#define GEN_PASS_DECL_LIBRARYEPILOGUESPASS
#define GEN_PASS_DECL_ASSIGNSTAGESPASS
#define GEN_PASS_DECL_FORWARDASTRAINPASS
#define GEN_PASS_DECL_ANNOTATEPASS
#define GEN_PASS_DECL_APPLYPASS
#include "passes/Passes.h.inc"

} // namespace cleave::passes
