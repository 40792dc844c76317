// Compares tensors, sums and pieces, element by element.
#include "tests/random/Compare.h"

#include <algorithm>
#include <fmt/format.h>
#include <iterator>
#include <optional>

namespace cleave::random_models {

std::string compareWhole(const ir::Slots &expected, const ir::Slots &spread, const ir::Slots &found, bool equal) {
  for (const auto &[key, tensor] : expected) {
    const auto got = found.find(key);
    if (ofGroup(key, everySample))
      continue;
    if (got == found.end()) {
      if (key.kind == ir::SlotKind::Gradient)
        continue; // freed after the update
      return fmt::format("{} {} is nowhere", text(key.kind), key.name);
    }
    if (got->second.shape != tensor.shape)
      return fmt::format("{} {} has another shape", text(key.kind), key.name);
    std::vector<int64_t> all(tensor.values.size());
    for (size_t i = 0; i < all.size(); ++i)
      all[i] = static_cast<int64_t>(i);
    const std::string text = difference(key, tensor, &spread.at(key), all, got->second.values, equal);
    if (!text.empty())
      return text;
  }
  return {};
}

std::string compareOnly(const ir::Slots &expected, const ir::Slots &spread, const ir::Slots &found, bool equal,
                        bool (*is)(const ir::SlotKey &)) {
  ir::Slots only;
  std::copy_if(expected.begin(), expected.end(), std::inserter(only, only.end()),
               [&](const auto &entry) { return is(entry.first); });
  if (only.size() != found.size())
    return fmt::format("{} values, the graph has {}", found.size(), only.size());
  return compareWhole(only, spread, found, equal);
}

bool isOutput(const ir::SlotKey &key) { return key.kind == ir::SlotKind::Output; }
bool isOfFirstBatch(const ir::SlotKey &key) { return key.kind == ir::SlotKind::Metric && ofGroup(key, firstBatch); }

/// A metric by name: "loss", "weight.1", "correct", "correct.5"; nullopt for others.
static std::optional<double> sumNamed(const LossSums &sums, const std::string &name) {
  if (sums.terms.empty()) // nothing was evaluated
    return std::nullopt;
  for (size_t i = 0; i < sums.terms.size(); ++i)
    if (const auto [sum, weight] = namesOfTerm(i); name == sum || name == weight)
      return name == sum ? sums.terms[i].sum : sums.terms[i].weight;
  const auto count = sums.counts.find(name);
  return count == sums.counts.end() ? std::nullopt : std::optional(count->second);
}

std::string compareSums(const ir::Slots &expected, const ir::Slots &spread, const LossSums &sums,
                        const LossSums &evaluated, bool equal) {
  for (const auto &[key, tensor] : expected) {
    const std::string name = nameInGroup(key);
    if (key.kind != ir::SlotKind::Metric || (ofGroup(key, firstBatch) && expected.count(groupKey(everySample, name))))
      continue;
    if (const std::optional<double> got = sumNamed(name == key.name ? sums : evaluated, name))
      if (std::string text = difference(key, tensor, &spread.at(key), {0}, {*got}, equal); !text.empty())
        return text;
  }
  return {};
}

std::string comparePieces(const ir::Slots &expected, const ir::Slots &spread, const Pieces &pieces, bool equal) {
  for (const auto &[key, tensor] : expected) {
    if (key.kind == ir::SlotKind::Output || key.kind == ir::SlotKind::Metric)
      continue;
    const auto found = pieces.find(key);
    if (found == pieces.end()) {
      if (key.kind == ir::SlotKind::Gradient)
        continue;
      return fmt::format("{} {} is on no rank", text(key.kind), key.name);
    }
    std::vector<bool> held(tensor.values.size());
    for (const HeldPiece &piece : found->second) {
      for (const int64_t index : piece.indices)
        held[static_cast<size_t>(index)] = true;
      if (std::string text = difference(key, tensor, &spread.at(key), piece.indices, piece.values, equal);
          !text.empty())
        return fmt::format("rank {}: {}", piece.rank, text);
    }
    if (std::find(held.begin(), held.end(), false) != held.end())
      return fmt::format("no rank holds all of {} {}", text(key.kind), key.name);
  }
  return {};
}

} // namespace cleave::random_models
