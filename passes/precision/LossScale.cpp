// Reads and writes the module attribute of loss scaling.
#include "passes/precision/LossScale.h"

#include "mlir/IR/Builders.h"

using namespace mlir;

namespace cleave::passes {

static constexpr llvm::StringLiteral attribute = "cleave.loss_scale";

std::optional<LossScale> LossScale::of(ModuleOp module) {
  auto dictionary = module->getAttrOfType<DictionaryAttr>(attribute);
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

void LossScale::setOn(ModuleOp module) const {
  Builder b(module.getContext());
  module->setAttr(attribute,
                  b.getDictionaryAttr({b.getNamedAttr("initial", b.getF64FloatAttr(initial)),
                                       b.getNamedAttr("dynamic", b.getBoolAttr(dynamic)),
                                       b.getNamedAttr("growth_interval", b.getI64IntegerAttr(growthInterval))}));
}

} // namespace cleave::passes
