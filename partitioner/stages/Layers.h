// Layers of a traced model and how pipeline stages are cut from them.
#pragma once
#include "partitioner/stages/LayerNames.h"
#include "partitioner/strategy/Strategy.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/BuiltinOps.h"

#include <string>
#include <vector>

namespace cleave::partitioner {

/// A run of forward ops that a stage cut does not divide.
struct Layer {
  std::string path;        ///< "" where no module made an op of it
  int64_t mark = -1;       ///< the code's stage(k) for all of its ops; -1: none
  double cost = 0;         ///< forward FLOPs of a microbatch, plus a charge per element moved
  bool parameters = false; ///< whether an op reads one
  std::vector<mlir::Operation *> ops;
};

/// The names of a forward function's layers. `named`: see LayerNames.
LayerNames layerNames(mlir::func::FuncOp func, std::set<std::string> named = {});

/// The layers of a forward function in program order. Ops outside any module, and those of the loss, join the layer
/// before them; where that has another mark, or where there is none, the layer after them; else they are a layer without
/// a path. A module that runs again later is there again.
std::vector<Layer> layersOf(mlir::func::FuncOp func, const LayerNames &names);

/// FLOPs of one op on its (global or local) types; 0 for everything but products and convolutions, gradients included.
double flopsOf(mlir::Operation *op);

/// Splits `costs` into `parts` runs, each not empty, whose largest sum is least; returns where each run begins.
std::vector<size_t> balancedCuts(const std::vector<double> &costs, size_t parts);

/// Sets cleave.stage on every op of @forward and @eval: as the strategy's `stages` say, else the code's stage(k) marks,
/// else balanced by cost. Completes `strategy.stages`. Throws userError where there are more stages than layers with
/// parameters, marks that do not count up to pp, a path that no layer has, or a stage without parameters.
void assignStages(mlir::ModuleOp module, Strategy &strategy);

/// Makes what costs nothing to make again in the stage of each of its users, so that only what was computed travels over
/// a cut, once: constants, indices, broadcasts; what only renames elements; casts and slices of inputs and parameters.
void remakeInStagesOfUsers(mlir::func::FuncOp func);

} // namespace cleave::partitioner
