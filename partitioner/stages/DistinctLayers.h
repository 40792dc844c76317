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
  int64_t tiedTo = -1;     ///< another layer that owns a parameter which this one also reads
  double tiedShare = 0;    ///< the parameter's part of its owner's parameters
};

/// The layers of @forward, in program order; each stands for itself. `pinned`: a strategy whose stages may name
/// modules, which are then layers (see LayerNames).
std::vector<LayerOutline> outlineOf(mlir::ModuleOp module, const Decisions &pinned);

/// Throws userError if the strategy's rules or stages name what the model does not have. If it lists stages, or the
/// code marks them, returns the first layer of each; otherwise nothing.
std::vector<size_t> pinnedBegins(mlir::ModuleOp module, const Decisions &pinned);

/// Removes all but the first two or three layers of each kind from @forward, with their parameters and buffers, and
/// @eval. Two stay, so that what neighbours share, such as a kernel across their boundary, is counted; of an odd number
/// three, since layers may be split in turns, by columns and by rows. If a layer of the result would have no use,
/// returns nothing, and the module can no longer be used. Otherwise returns all layers of the whole model, in program
/// order. Layers to which different rules of `pinned` apply are of different kinds.
std::vector<LayerOutline> keepDistinctLayers(mlir::ModuleOp module, const Decisions &pinned);

} // namespace cleave::partitioner
