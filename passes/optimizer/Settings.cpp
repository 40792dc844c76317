// Reads and checks the optimizer's settings.
#include "passes/optimizer/Settings.h"

#include "runtime/base/Error.h"

#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>

using namespace mlir;

namespace cleave::passes {

std::optional<double> numberAttr(Attribute attribute) {
  if (auto number = dyn_cast_or_null<FloatAttr>(attribute))
    return number.getValueAsDouble();
  if (auto flag = dyn_cast_or_null<BoolAttr>(attribute))
    return flag.getValue() ? 1 : 0;
  if (auto number = dyn_cast_or_null<IntegerAttr>(attribute))
    return static_cast<double>(number.getInt());
  return std::nullopt;
}

llvm::SmallVector<std::string> statesOf(const plan::OptimizerT &optimizer) {
  llvm::SmallVector<std::string> states;
  if (optimizer.kind != plan::OptimizerKind::Sgd)
    states = {"exp_avg", "exp_avg_sq"};
  else if (optimizer.momentum != 0)
    states = {"momentum"};
  if (optimizer.ema > 0)
    states.push_back(averageState);
  return states;
}

static plan::OptimizerKind kindOf(Attribute attribute) {
  const auto text = dyn_cast_or_null<StringAttr>(attribute);
  const std::string name = text ? text.str() : "";
  const auto found = std::find(optimizerNames.begin(), optimizerNames.end(), name);
  if (found == optimizerNames.end())
    throw userError(
        fmt::format("optimizer: name is \"{}\", expected one of {}", name, fmt::join(optimizerNames, ", ")));
  return static_cast<plan::OptimizerKind>(found - optimizerNames.begin());
}

plan::OptimizerT readOptimizer(DictionaryAttr attributes) {
  if (!attributes || !attributes.get("name"))
    throw userError("optimizer: the module attribute cleave.optimizer has no name");
  plan::OptimizerT optimizer;
  optimizer.kind = kindOf(attributes.get("name"));
  optimizer.beta1 = 0.9, optimizer.beta2 = 0.999, optimizer.eps = 1e-8;
  for (const NamedAttribute attribute : attributes) {
    const llvm::StringRef name = attribute.getName();
    if (name == "name" || name == "lr")
      continue;
    const std::optional<double> number = numberAttr(attribute.getValue());
    if (!number)
      throw userError(fmt::format("optimizer: {} is not a number", name.str()));
    const auto fields = optimizerFields(optimizer.kind);
    const auto field = std::find_if(fields.begin(), fields.end(), [&](const auto &f) { return name == f.name; });
    if (name == "nesterov" && optimizer.kind == plan::OptimizerKind::Sgd) {
      optimizer.nesterov = *number != 0;
    } else if (field == fields.end()) {
      throw userError(fmt::format("optimizer: {} has no option \"{}\"",
                                  optimizerNames[static_cast<size_t>(optimizer.kind)], name.str()));
    } else if (!(*number >= 0 && *number < field->below)) {
      throw userError(fmt::format("optimizer: {} must be {}, found {}", name.str(),
                                  field->below == 1 ? "in [0, 1)" : "at least 0", *number));
    } else {
      optimizer.*field->value = *number;
    }
  }
  if (optimizer.nesterov && optimizer.momentum == 0)
    throw userError("optimizer: momentum must be positive for nesterov, found 0");
  return optimizer;
}

} // namespace cleave::passes
