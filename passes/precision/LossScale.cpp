// Reads and writes the module attribute of loss scaling.
#include "passes/precision/LossScale.h"
#include "ir/graph/Graph.h"

#include "mlir/IR/Builders.h"

using namespace mlir;

namespace cleave::passes {

std::optional<LossScale> lossScaleOf(ModuleOp module) {
  auto dictionary = module->getAttrOfType<DictionaryAttr>(ir::attr::lossScale);
  if (!dictionary)
    return std::nullopt;
  LossScale scale;
  if (auto initial = dictionary.getAs<FloatAttr>("initial"))
    scale.initial = initial.getValueAsDouble();
  if (auto dynamic = dictionary.getAs<BoolAttr>("dynamic"))
    scale.dynamic = dynamic.getValue();
  if (auto interval = dictionary.getAs<IntegerAttr>("growth_interval"))
    scale.growthInterval = interval.getInt();
  return scale;
}

void setLossScale(ModuleOp module, const std::optional<LossScale> &scale) {
  Builder b(module.getContext());
  if (!scale) {
    module->removeAttr(ir::attr::lossScale);
    return;
  }
  module->setAttr(ir::attr::lossScale,
                  b.getDictionaryAttr({b.getNamedAttr("initial", b.getF64FloatAttr(scale->initial)),
                                       b.getNamedAttr("dynamic", b.getBoolAttr(scale->dynamic)),
                                       b.getNamedAttr("growth_interval", b.getI64IntegerAttr(scale->growthInterval))}));
}

} // namespace cleave::passes
