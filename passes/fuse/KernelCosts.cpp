// Looks up the costs of kernels, or asks the planner and the cost model.
#include "passes/fuse/KernelCosts.h"
#include "ir/graph/Graph.h"
#include "passes/codegen/nest/FromFusion.h"

#include "llvm/Support/xxhash.h"

#include <bit>
#include <limits>

namespace cleave::passes {

double KernelCosts::of(const Groups &groups, const std::vector<mlir::Operation *> &ops) {
  const auto [inputs, outputs] = groups.border(ops);
  if (outputs.empty())
    return 0;
  llvm::SmallVector<bool> scalar;
  for (mlir::Value input : inputs)
    scalar.push_back(kernel::isShardOffset(input));
  kernel::Signature signature = kernel::signatureOf(
      inputs, ops, outputs, scalar, [&](mlir::Type type) { return numberOf(type); },
      [&](mlir::Operation *op) { return numberOf(op); });
  signature.push_back(static_cast<uintptr_t>(width));
  if (const auto known = table.find(signature))
    return *known;
  auto nest = kernel::loopNestOf(kernel::graphOf(inputs, ops, outputs, scalar, kernel::Tables::Omit), nullptr, width);
  const double cost = nest ? kernel::cost(*nest) : std::numeric_limits<double>::infinity();
  table.add(std::move(signature), cost);
  return cost;
}

uintptr_t KernelCosts::numberOf(mlir::Operation *op) {
  auto [found, fresh] = ops.try_emplace(op, 0);
  if (!fresh)
    return found->second;
  kernel::Node node = kernel::nodeOf(op, kernel::Tables::Omit);
  if (node.table.empty())
    return found->second = table.numberOf(node);
  const auto elements = mlir::cast<mlir::DenseElementsAttr>(mlir::cast<ir::ConstantOp>(op).getValue());
  auto [same, first] = constants.try_emplace(elements, 0);
  if (first) { // a table may be long, and has many clones
    const llvm::ArrayRef<char> bytes = elements.getRawData();
    const auto hash = llvm::xxh3_128bits({reinterpret_cast<const uint8_t *>(bytes.data()), bytes.size()});
    node.table = {std::bit_cast<double>(hash.low64), std::bit_cast<double>(hash.high64)};
    same->second = table.numberOf(node);
  }
  return found->second = same->second;
}

uintptr_t KernelCosts::numberOf(mlir::Type type) {
  auto [found, fresh] = types.try_emplace(type, 0);
  if (fresh)
    found->second = table.numberOf(kernel::inputOf(type));
  return found->second;
}

} // namespace cleave::passes
