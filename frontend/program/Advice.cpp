// Warnings about a traced graph and its parameters.
#include "frontend/program/Advice.h"
#include "frontend/trace/TraceModel.h"
#include "ir/graph/Graph.h"
#include "passes/differentiate/Differentiate.h"
#include "runtime/base/MachineMemory.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/ADT/DenseSet.h"

#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>

namespace cleave {

/// All values that the function's results depend on.
static llvm::DenseSet<mlir::Value> reachedFrom(mlir::func::FuncOp function) {
  llvm::DenseSet<mlir::Value> reached;
  std::vector<mlir::Value> open;
  const auto visit = [&](mlir::ValueRange values) {
    for (mlir::Value value : values)
      if (reached.insert(value).second)
        open.push_back(value);
  };
  for (const auto &[i, result] : llvm::enumerate(function.getBody().front().getTerminator()->getOperands()))
    if (ir::resultKind(function, static_cast<unsigned>(i)) != ir::SlotKind::Invalid)
      visit(result);
  while (!open.empty()) {
    const mlir::Value value = open.back();
    open.pop_back();
    if (mlir::Operation *op = value.getDefiningOp())
      visit(op->getOperands());
  }
  return reached;
}

/// "a, b, c and N more".
static std::string listed(const std::vector<std::string> &names) {
  constexpr size_t most = 5;
  const std::vector<std::string> first(names.begin(), names.begin() + std::min(most, names.size()));
  const std::string text = fmt::format("{}", fmt::join(first, ", "));
  return names.size() > most ? fmt::format("{} and {} more", text, names.size() - most) : text;
}

std::string warningOf(const Precision &precision, Target target) {
  const bool bf16 = precision.type == Precision::Type::Bf16, fp16 = precision.type == Precision::Type::Fp16;
  if (precision.level == 0 || !(bf16 || fp16) || (bf16 ? target.multipliesBf16() : target.multipliesFp16()))
    return "";
  return fmt::format(
      "--precision {}: {} has no products in {}, which are computed in f32: less memory, but fp32 may be faster",
      text(precision.type), target.text(), text(precision.type));
}

/// A line if a loss has outputs for classes that no label of the field can have.
static std::string fewerClasses(const DataField &field, mlir::ArrayAttr indices) {
  for (auto one : indices.getAsRange<ir::IndicesAttr>())
    if (one.getLeast() < 0 && field.classes > 0 && field.classes < one.getBelow())
      return fmt::format("{}: there are outputs for {} classes, field {} of the data has {}",
                         one.getReader().getValue().str(), one.getBelow(), field.name, field.classes);
  return "";
}

std::vector<std::string> warningsOf(GraphModule &graph, const std::vector<DataField> &data) {
  auto forward = graph.module().lookupSymbol<mlir::func::FuncOp>("forward");
  const llvm::DenseSet<mlir::Value> reached = reachedFrom(forward);
  std::vector<std::string> parameters = passes::parametersWithoutGradient(forward), fields, warnings;
  int64_t all = 0, trainable = 0;
  for (mlir::BlockArgument argument : forward.getArguments()) {
    const ir::SlotKind kind = ir::argumentKind(argument);
    const llvm::StringRef name = ir::argumentText(argument, ir::attr::name);
    if (kind == ir::SlotKind::Input && !reached.contains(argument))
      fields.push_back(name.str());
    if (auto indices = forward.getArgAttrOfType<mlir::ArrayAttr>(argument.getArgNumber(), ir::attr::indices))
      if (const auto field = std::ranges::find(data, name, &DataField::name); field != data.end())
        if (std::string text = fewerClasses(*field, indices); !text.empty())
          warnings.push_back(std::move(text));
    if (kind != ir::SlotKind::Parameter)
      continue;
    ++all;
    trainable += forward.getArgAttr(argument.getArgNumber(), ir::attr::trainable) != nullptr;
  }
  if (!parameters.empty())
    warnings.push_back(fmt::format("parameter{} {}: the loss has no gradient for {}, so there is no update (no decay, "
                                   "no momentum)",
                                   parameters.size() == 1 ? "" : "s", listed(parameters),
                                   parameters.size() == 1 ? "it" : "them"));
  if (!fields.empty())
    warnings.push_back(fmt::format("data field{} {}: the loss does not depend on {}", fields.size() == 1 ? "" : "s",
                                   listed(fields), fields.size() == 1 ? "it" : "them"));
  if (all == 0)
    warnings.emplace_back("the model has no parameters: there is nothing to train");
  else if (trainable == 0)
    warnings.emplace_back("every parameter is frozen: training changes nothing");
  return warnings;
}

void checkParametersFit(const Module &root) { requireParametersWithin(root, machineMemory(), "this machine"); }

} // namespace cleave
