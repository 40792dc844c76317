// Chooses the numbers that code reads when it runs.
#include "passes/codegen/nest/Sizes.h"

#include <algorithm>
#include <bit>

namespace cleave::passes::kernel {

namespace {

bool dependsOtherwise(const LoopNest &nest) {
  return nest.flat || nest.width == 1 || nest.vectorLoop < 0 || (nest.scratchSlots > 0 && nest.shape != Shape::Map) ||
         !nest.tables.empty() || std::any_of(nest.values.begin(), nest.values.end(), [](const LoopValue &value) {
           return !value.conditions.empty();
         });
}

/// A bit for each constant of f32 that is read once a row, where it costs nothing that it is in memory.
std::vector<bool> constantsOfRows(const LoopNest &nest) {
  std::vector<bool> found(nest.values.size());
  for (size_t i = 0; i < nest.values.size(); ++i)
    found[i] = nest.values[i].kind == ValueKind::Constant && isFloat(nest.values[i].type);
  for (size_t i = 0; i < nest.values.size(); ++i)
    for (const int operand : nest.values[i].operands)
      if (!nest.placements[i].row || nest.values[i].kind == ValueKind::Reduce)
        found[operand] = false;
  for (const Store &store : nest.stores)
    found[store.value] = false;
  return found;
}

} // namespace

Sizes::Sizes(const LoopNest &nest) {
  if (dependsOtherwise(nest))
    return;
  for (int l = 0; l < static_cast<int>(nest.loops.size()); ++l)
    if (l != nest.vectorLoop || nest.loops[l].extent > nest.vectorBlock())
      add({Role::Extent, l, 0}, static_cast<uint64_t>(nest.loops[l].extent));
  const std::vector<bool> constants = constantsOfRows(nest);
  for (size_t i = 0; i < nest.values.size(); ++i) {
    const LoopValue &value = nest.values[i];
    if (value.kind == ValueKind::Load || value.kind == ValueKind::Index)
      add(nest, value.expr);
    if (constants[i])
      add({Role::Constant, static_cast<int>(i), 0}, std::bit_cast<uint32_t>(static_cast<float>(value.constant)));
  }
  for (const Store &store : nest.stores)
    add(nest, store.expr);
}

Sizes::Place Sizes::find(const Key &key) const {
  const auto found = places.find(key);
  return found == places.end() ? Place() : found->second;
}

void Sizes::add(const Key &key, uint64_t word) {
  if (places.try_emplace(key, values.size()).second)
    values.push_back(word);
}

void Sizes::add(const LoopNest &nest, const Expr &e) {
  for (int l = 0; l < static_cast<int>(nest.loops.size()); ++l)
    if (const int64_t value = e.coef[l]; l != nest.vectorLoop && value != 0 && value != 1)
      add({Role::Coefficient, l, value}, static_cast<uint64_t>(value));
  if (e.constant)
    add({Role::Offset, 0, e.constant}, static_cast<uint64_t>(e.constant));
}

} // namespace cleave::passes::kernel
