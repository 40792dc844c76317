// Layers of a traced model, and how pipeline stages are cut from them.
#pragma once
#include "partitioner/pipeline/Cuts.h"
#include "partitioner/stages/LayerNames.h"
#include "partitioner/strategy/Decisions.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/BuiltinOps.h"

#include <string>
#include <vector>

namespace cleave::partitioner {

/// A run of forward ops that is never split between stages.
struct Layer {
  std::string path;        ///< "" if no op belongs to a module
  int64_t mark = -1;       ///< stage(k) set by the code for all of its ops; -1: none
  double cost = 0;         ///< forward FLOPs of a microbatch, plus a charge per element moved
  bool parameters = false; ///< whether an op reads a parameter
  std::vector<mlir::Operation *> ops;
};

/// The layer names of a forward function. `named`: see LayerNames.
LayerNames layerNames(mlir::func::FuncOp func, std::set<std::string> named = {});

/// The layers of a forward function in program order. Ops outside any module, and ops of the loss, join the previous
/// layer if it has the same mark, otherwise the next layer; if neither is possible they form a layer without a path. A
/// module that runs again later is a further layer with the same path.
std::vector<Layer> layersOf(mlir::func::FuncOp func, const LayerNames &names);

/// The paths that the strategy's stages name as layers.
std::set<std::string> layersNamed(const Decisions &strategy);

/// The path of the module that the op belongs to; empty: none.
std::string pathOf(mlir::Operation *op);

/// FLOPs of one op for its (global or local) types; 0 for all ops except products, convolutions and their gradients.
double flopsOf(mlir::Operation *op);

/// Cost of moving one element, in FLOPs.
constexpr double elementCharge = 16;
/// The estimate by which stages are cut: FLOPs, and a charge for each element of the results.
double costOf(mlir::Operation *op);

/// Sets cleave.stage and cleave.layer on every op of @forward and @eval: by the strategy's `stages`, else by the code's
/// stage(k) marks, else balanced by cost, with all uses of a buffer that changes in one stage. Returns the strategy
/// with its stages. Throws userError if there are more stages than layers with parameters, if marks do not count up to
/// pp, if a path is not a layer, or if a stage has no parameters.
Decisions assignStages(mlir::ModuleOp module, Decisions strategy);

/// Whether an op is a view, a cast, a broadcast or a mark. Those of inputs and parameters are rematerialised in the
/// stage of each user.
bool isView(mlir::Operation *op);

/// Rematerialises ops that cost nothing in the stage of each user, so that only computed values are sent between
/// stages, each once. These ops are constants, indices, broadcasts, views, and casts and slices of inputs and
/// parameters; and casts of values that the user's stage reads, too.
void rematerialiseInStagesOfUsers(mlir::func::FuncOp func);

} // namespace cleave::partitioner
