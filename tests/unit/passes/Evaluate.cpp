// `evaluate` of Programs.h: maps names to the interpreter's positions and back.
#include "ir/graph/Graph.h"
#include "ir/interpreter/Interpreter.h"
#include "tests/unit/passes/FusedFunction.h"
#include "tests/unit/passes/Programs.h"

#include <stdexcept>

namespace cleave::testing {
namespace {

std::string key(mlir::StringAttr kind, mlir::StringAttr name) {
  return name ? kind.str() + ":" + name.str() : kind.str();
}

/// Calls `run` with the function's arguments.
template <class Run> Arrays evaluateWith(mlir::func::FuncOp func, const Arrays &arguments, Run run) {
  std::vector<ir::HostTensor> inputs;
  for (unsigned i = 0; i < func.getNumArguments(); ++i) {
    std::string name = key(func.getArgAttrOfType<mlir::StringAttr>(i, ir::attr::kind),
                           func.getArgAttrOfType<mlir::StringAttr>(i, ir::attr::name));
    auto given = arguments.find(name);
    if (given == arguments.end())
      throw std::runtime_error("no argument " + name);
    auto element = mlir::cast<mlir::RankedTensorType>(func.getArgument(i).getType()).getElementType();
    inputs.emplace_back(given->second.shape, ir::dtypeOf(element), given->second.data);
  }
  std::vector<ir::HostTensor> outputs = run(inputs);
  Arrays results;
  for (unsigned i = 0; i < func.getNumResults(); ++i)
    results[key(func.getResultAttrOfType<mlir::StringAttr>(i, ir::attr::kind),
                func.getResultAttrOfType<mlir::StringAttr>(i, ir::attr::name))] = {outputs[i].shape, outputs[i].values};
  return results;
}

} // namespace

Arrays evaluate(const GraphModule &module, const std::string &function, const Arrays &arguments) {
  auto func = module.module().lookupSymbol<mlir::func::FuncOp>(function);
  return evaluateWith(func, arguments, [&](const auto &inputs) { return ir::evaluate(func, inputs); });
}

Arrays evaluate(FusedFunction &fused, const Arrays &arguments) {
  return evaluateWith(fused.graph(), arguments, [&](const auto &inputs) { return fused.run(inputs); });
}

} // namespace cleave::testing
