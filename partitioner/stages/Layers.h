// Layers of a traced model and how pipeline stages are cut from them.
#pragma once
#include "partitioner/strategy/Strategy.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/BuiltinOps.h"

#include <string>
#include <vector>

namespace cleave::partitioner {

/// A run of forward ops that a stage cut does not divide: a top-level module, or one member of a list ("blocks.3").
struct Layer {
  std::string path;
  double cost = 0; // forward FLOPs of a microbatch, plus a charge per element moved
  std::vector<mlir::Operation *> ops;
};

/// The layers of a forward function in program order. Ops outside any module, and those of the
/// loss, join the layer before them.
std::vector<Layer> layersOf(mlir::func::FuncOp func);

/// The layer a module path belongs to: "blocks.3.attention.qkv" -> "blocks.3", "fc1" -> "fc1", "" -> "".
std::string layerOf(const std::string &path);

/// FLOPs of one op on its (global or local) types; 0 for everything but products and convolutions, gradients included.
double flopsOf(mlir::Operation *op);

/// Splits `costs` into `parts` runs, each not empty, whose largest sum is least; returns where each run begins.
std::vector<size_t> balancedCuts(const std::vector<double> &costs, size_t parts);

/// Sets cleave.stage on every op of @forward and @eval: as the strategy's `stages` say, else the code's stage(k) marks,
/// else balanced by cost. Completes `strategy.stages`. Throws userError where there are more stages than layers, marks
/// that do not count up to pp, or a module path that no layer has.
void assignStages(mlir::ModuleOp module, Strategy &strategy);

} // namespace cleave::partitioner
