// Nodes as lists of numbers, and maps behind a lock.
#include "passes/fuse/KernelCostTable.h"

#include <bit>

namespace cleave::passes {
namespace {

/// Everything of a node but its operands.
std::vector<uint64_t> contentOf(const kernel::Node &node) {
  std::vector<uint64_t> content{static_cast<uint64_t>(node.kind),
                                static_cast<uint64_t>(node.type),
                                static_cast<uint64_t>(node.dim),
                                std::bit_cast<uint64_t>(node.value),
                                static_cast<uint64_t>(node.combine),
                                static_cast<uint64_t>(node.relation),
                                static_cast<uint64_t>(node.tanh),
                                static_cast<uint64_t>(node.scalar),
                                node.shape.size(),
                                node.dims.size()};
  content.insert(content.end(), node.shape.begin(), node.shape.end());
  content.insert(content.end(), node.dims.begin(), node.dims.end());
  for (const double value : node.table)
    content.push_back(std::bit_cast<uint64_t>(value));
  return content;
}

} // namespace

uintptr_t KernelCostTable::numberOf(const kernel::Node &node) {
  std::vector<uint64_t> content = contentOf(node);
  {
    const std::shared_lock lock(mutex);
    if (const auto found = numbers.find(content); found != numbers.end())
      return found->second;
  }
  const std::unique_lock lock(mutex);
  return numbers.try_emplace(std::move(content), numbers.size()).first->second;
}

std::optional<double> KernelCostTable::find(const kernel::Signature &signature) const {
  const std::shared_lock lock(mutex);
  const auto found = costs.find(signature);
  return found == costs.end() ? std::nullopt : std::optional(found->second);
}

void KernelCostTable::add(kernel::Signature signature, double cost) {
  const std::unique_lock lock(mutex);
  costs.try_emplace(std::move(signature), cost);
}

} // namespace cleave::passes
