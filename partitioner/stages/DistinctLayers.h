// A model with repeated layers, reduced to one that has all its kinds of layers: what a search measures instead of the
// whole model.
#pragma once
#include "partitioner/stages/Layers.h"

namespace cleave::partitioner {

/// A layer of the traced model. Two layers are of one kind if they have the same ops, types and attributes, and read
/// values in the same way: they then cost the same under every split.
struct LayerOutline {
  std::string path;        ///< "" if no op belongs to a module
  std::string kept;        ///< the layer of the reduced model that stands for it: itself, or one of its kind
  int kind = 0;            ///< equal for layers of one kind
  int64_t mark = -1;       ///< see Layer
  bool parameters = false; ///< whether an op reads a parameter
  double flops = 0;        ///< forward, of the traced rows
  double sentBytes = 0;    ///< of values that later layers read, of layers up to this one; of the traced rows and types
};

/// The layers of @forward, in program order; each stands for itself.
std::vector<LayerOutline> outlineOf(mlir::ModuleOp module);

/// Removes all but the first two layers of each kind from @forward, with their parameters and buffers, and @eval. Two
/// stay, so that what neighbours share, such as a kernel across their boundary, is counted. If a layer of the result
/// would have no use, returns nothing, and the module can no longer be used. Otherwise returns all layers of the whole
/// model, in program order.
std::vector<LayerOutline> keepDistinctLayers(mlir::ModuleOp module);

} // namespace cleave::partitioner
