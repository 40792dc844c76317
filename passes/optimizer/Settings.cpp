// Reads and checks the optimizer's settings.
#include "passes/optimizer/Settings.h"

#include "runtime/base/Error.h"

#include <fmt/format.h>

using namespace mlir;

namespace cleave::passes {
namespace {

OptimizerKind kindOf(llvm::StringRef name) {
  if (name == "sgd")
    return OptimizerKind::Sgd;
  if (name == "adam")
    return OptimizerKind::Adam;
  if (name == "adamw")
    return OptimizerKind::AdamW;
  throw userError(fmt::format("optimizer: name is \"{}\", expected sgd, adam or adamw", name.str()));
}

double requireNumber(NamedAttribute attribute) {
  if (auto number = numberAttr(attribute.getValue()))
    return *number;
  throw userError(fmt::format("optimizer: {} is not a number", attribute.getName().str()));
}

void require(bool holds, const char *name, const char *rule, double found) {
  if (!holds)
    throw userError(fmt::format("optimizer: {} must be {}, found {}", name, rule, found));
}

void set(OptimizerSettings &settings, NamedAttribute attribute) {
  llvm::StringRef name = attribute.getName();
  if (name == "name") {
    auto text = dyn_cast<StringAttr>(attribute.getValue());
    settings.kind = kindOf(text ? text.getValue() : "");
    return;
  }
  double number = requireNumber(attribute);
  if (name == "momentum")
    settings.momentum = number;
  else if (name == "nesterov")
    settings.nesterov = number != 0;
  else if (name == "weight_decay")
    settings.weightDecay = number;
  else if (name == "beta1")
    settings.beta1 = number;
  else if (name == "beta2")
    settings.beta2 = number;
  else if (name == "eps")
    settings.eps = number;
  else if (name == "clip_norm")
    settings.clipNorm = number > 0 ? std::optional(number) : std::nullopt;
  else if (name != "lr")
    throw userError(fmt::format("optimizer: there is no option \"{}\"", name.str()));
}

} // namespace

std::optional<double> numberAttr(Attribute attribute) {
  if (auto number = dyn_cast_or_null<FloatAttr>(attribute))
    return number.getValueAsDouble();
  if (auto flag = dyn_cast_or_null<BoolAttr>(attribute))
    return flag.getValue() ? 1 : 0;
  if (auto number = dyn_cast_or_null<IntegerAttr>(attribute))
    return static_cast<double>(number.getInt());
  return std::nullopt;
}

llvm::SmallVector<std::string> OptimizerSettings::slots() const {
  if (kind != OptimizerKind::Sgd)
    return {"exp_avg", "exp_avg_sq"};
  if (momentum != 0)
    return {"momentum"};
  return {};
}

OptimizerSettings readOptimizerSettings(DictionaryAttr attributes) {
  OptimizerSettings settings;
  if (!attributes || !attributes.get("name"))
    throw userError("optimizer: the module attribute cleave.optimizer has no name");
  for (NamedAttribute attribute : attributes)
    set(settings, attribute);
  require(settings.momentum >= 0, "momentum", "at least 0", settings.momentum);
  require(settings.weightDecay >= 0, "weight_decay", "at least 0", settings.weightDecay);
  require(settings.beta1 >= 0 && settings.beta1 < 1, "beta1", "in [0, 1)", settings.beta1);
  require(settings.beta2 >= 0 && settings.beta2 < 1, "beta2", "in [0, 1)", settings.beta2);
  require(settings.eps >= 0, "eps", "at least 0", settings.eps);
  require(!settings.nesterov || settings.momentum > 0, "momentum", "positive for nesterov", settings.momentum);
  return settings;
}

} // namespace cleave::passes
