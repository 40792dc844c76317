// The passes of the compiler, in the order of the pipeline (passes/pipeline/Pipeline.cpp): their names on cleave-opt's
// command line, summaries and options. Each is implemented in its phase's folder.
#ifndef CLEAVE_PASSES
#define CLEAVE_PASSES

include "mlir/Pass/PassBase.td"

class ModulePass<string argument> : Pass<argument, "::mlir::ModuleOp"> {
  let dependentDialects = ["::cleave::ir::CleaveDialect", "::cleave::dist::DistDialect", "::mlir::func::FuncDialect"];
}

/// How the partitioner splits a step, for a text without a strategy file.
defvar strategyOptions = [
  Option<"mesh", "mesh", "std::string", "\"dp=1\"", "devices along each axis, for example dp=2,tp=2">,
  Option<"microbatches", "microbatches", "int64_t", "1", "parts a batch is cut into">,
  Option<"schedule", "schedule", "std::string", "\"1f1b\"", "order of microbatches">,
  Option<"chunks", "virtual", "int64_t", "1", "pipeline stages of each rank">,
  Option<"sequence", "sequence", "std::string", "\"\"", "tp: split activations between products along the sequence">,
  Option<"zero", "zero", "int64_t", "0", "stage of ZeRO over dp">
];

def PrecisionPass : ModulePass<"precision"> {
  let summary = "Sets the element types of a traced model by optimisation level";
  let description = [{
    Rewrites @forward and @eval by the levels O0 to O3 (passes/precision/Precision.h), and records on the module how the
    loss is scaled and in which type gradients are summed over dp.
  }];
  let options = [
    Option<"half", "half", "::cleave::Precision::Type", "::cleave::Precision::Type::Bf16", "the half type of the level",
           [{llvm::cl::values(clEnumValN(::cleave::Precision::Type::Bf16, "bf16", "8 bits of exponent, 7 of mantissa"),
                              clEnumValN(::cleave::Precision::Type::Fp16, "fp16", "5 bits of exponent, 10 of mantissa"))}]>,
    Option<"level", "level", "int64_t", "1", "how much is in the half type: 0 (nothing) to 3">,
    Option<"lossScale", "loss-scale", "std::string", "\"\"",
           "dynamic, none or a number; default: as the module says">,
    Option<"reduceType", "reduce-dtype", "std::string", "\"\"",
           "fp32, bf16 or fp16, of gradients summed over dp; default: as the module says">
  ];
}

def LibraryEpiloguesPass : ModulePass<"library-epilogues"> {
  let summary = "Records that the target's libraries add biases and activations to their products";
  let description = [{Sets the module attribute cleave.epilogues, by which apply keeps copies of parameters.}];
}

def AssignStagesPass : ModulePass<"assign-stages"> {
  let summary = "Cuts a traced model into pipeline stages";
  let description = [{Sets cleave.stage on every op of @forward and @eval.}];
  let options = strategyOptions;
}

def ChannelsLastPass : ModulePass<"channels-last"> {
  let summary = "Convolutions and what follows them work on [n, h, w, c]";
}

def LeaveUntrainedPass : ModulePass<"leave-untrained"> {
  let summary = "Makes parameters untrainable on which the loss does not depend";
}

def DifferentiatePass : ModulePass<"differentiate"> {
  let summary = "Reverse-mode differentiation: @forward becomes @train";
  let options = [Option<"microbatches", "microbatches", "int64_t", "1", "parts a batch is cut into">];
}

def BuildOptimizerPass : ModulePass<"build-optimizer"> {
  let summary = "Builds @update from the module attribute cleave.optimizer";
}

def ForwardAsTrainPass : ModulePass<"forward-as-train"> {
  let summary = "Puts what runs without training where apply looks for a step: @eval, or a prediction's @forward, "
                "becomes @train";
}

def DecomposePass : ModulePass<"decompose"> {
  let summary = "Softmax, norms, losses and attention become primitives";
  let options = [
    Option<"attention", "attention", "::cleave::passes::AttentionOps", "::cleave::passes::AttentionOps::Decompose",
           "what becomes of attention",
           [{llvm::cl::values(
               clEnumValN(::cleave::passes::AttentionOps::Decompose, "decompose", "matrix products and a softmax"),
               clEnumValN(::cleave::passes::AttentionOps::KeepHalf, "keep-half", "stays where GPUs have a kernel"),
               clEnumValN(::cleave::passes::AttentionOps::KeepWide, "keep-wide", "stays where CPUs have a kernel"),
               clEnumValN(::cleave::passes::AttentionOps::Keep, "keep", "stays"))}]>
  ];
}

def RecomputePass : ModulePass<"recompute"> {
  let summary = "Copies forward ops into the backward pass, which then keeps fewer of their results";
  let options = [Option<"kind", "kind", "std::string", "\"full\"", "none, selective or full, of every repeated layer">,
                 Option<"keptScores", "kept-scores", "bool", "false", "attention keeps its scores on the devices: selective runs it again">];
}

def SimplifyPass : ModulePass<"simplify"> {
  let summary = "Canonical forms, common subexpressions, dead ops";
}

def AnnotatePass : ModulePass<"annotate"> {
  let summary = "Gives every value of a step its sharding";
  let options = strategyOptions;
}

def ApplyPass : ModulePass<"apply"> {
  let summary = "Splits a step into local programs with explicit collectives and messages";
  let options = strategyOptions;
}

def FusePass : Pass<"fuse", "::mlir::func::FuncOp"> {
  let summary = "Groups elementwise, indexing and reducing ops into fusions";
  let options = [Option<"gpu", "gpu", "bool", "false", "for the threads of a GPU">];
}

def GatherEarlyPass : Pass<"gather-early", "::mlir::func::FuncOp"> {
  let summary = "Moves all-gathers in front of the work that may run beside them";
}

def CombineReductionsPass : Pass<"combine-reductions", "::mlir::func::FuncOp"> {
  let summary = "Combines small all-reduces that do not depend on each other into one message";
}

#endif // CLEAVE_PASSES
