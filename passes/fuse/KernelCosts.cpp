// Looks up the costs of kernels, or asks the planner and the cost model.
#include "passes/fuse/KernelCosts.h"
#include "ir/graph/Graph.h"
#include "passes/codegen/nest/FromFusion.h"

#include "llvm/Support/xxhash.h"

#include <algorithm>
#include <bit>
#include <limits>

namespace cleave::passes {

namespace {

/// Where the slices among the ops of a kernel start, in the order of the ops. Of an operand that is only sliced, the
/// first slice counts as its begin, so that kernels of the steps of an unrolled loop are alike: they read the same
/// elsewhere. Not where elements may lie outside of an operand, which is guarded.
std::vector<std::vector<int64_t>> startsOf(llvm::ArrayRef<mlir::Operation *> ops) {
  std::vector<std::vector<int64_t>> starts;
  for (mlir::Operation *op : ops)
    if (auto slice = mlir::dyn_cast<ir::SliceOp>(op))
      starts.push_back(slice.getStarts().vec());
  if (starts.empty() || llvm::any_of(ops, [](mlir::Operation *op) { return mlir::isa<ir::PadOp, ir::ConcatOp>(op); }))
    return starts;
  llvm::SmallDenseMap<mlir::Value, std::vector<int64_t>> least; // empty: read as a whole, or computed by the kernel
  for (auto next = starts.begin(); mlir::Operation * op : ops) {
    for (mlir::Value operand : op->getOperands()) {
      const auto [found, fresh] = least.try_emplace(operand);
      if (!mlir::isa<ir::SliceOp>(op))
        found->second.clear();
      else if (fresh)
        found->second = *next++;
      else
        for (auto [first, start] : llvm::zip(found->second, *next++))
          first = std::min(first, start);
    }
    least.try_emplace(op->getResult(0));
  }
  for (auto next = starts.begin(); mlir::Operation * op : ops)
    if (mlir::isa<ir::SliceOp>(op))
      for (auto [start, first] : llvm::zip(*next++, least[op->getOperand(0)]))
        start -= first;
  return starts;
}

} // namespace

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
  const std::vector<std::vector<int64_t>> starts = startsOf(ops);
  for (const std::vector<int64_t> &slice : starts)
    signature.insert(signature.end(), slice.begin(), slice.end());
  if (const auto known = table.find(signature))
    return *known;
  kernel::KernelGraph graph = kernel::graphOf(inputs, ops, outputs, scalar, kernel::Tables::Omit);
  for (auto next = starts.begin(); kernel::Node & node : graph.nodes)
    if (node.kind == kernel::NodeKind::Slice)
      node.dims = *next++;
  const auto nest = kernel::loopNestOf(graph, nullptr, width);
  const double cost = nest ? kernel::cost(*nest) : std::numeric_limits<double>::infinity();
  table.add(std::move(signature), cost);
  return cost;
}

uintptr_t KernelCosts::numberOf(mlir::Operation *op) {
  auto [found, fresh] = ops.try_emplace(op, 0);
  if (!fresh)
    return found->second;
  kernel::Node node = kernel::nodeOf(op, kernel::Tables::Omit);
  if (node.kind == kernel::NodeKind::Slice)
    node.dims.clear(); // see startsOf
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
