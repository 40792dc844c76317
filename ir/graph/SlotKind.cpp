// The texts of `cleave.kind`.
#include "ir/graph/SlotKind.h"

#include <algorithm>
#include <array>

namespace cleave::ir {

static constexpr std::array<std::string_view, 15> texts = {"",        "buffer", "correct", "gradient", "input",
                                                           "invalid", "loss",   "metric",  "output",   "parameter",
                                                           "scalar",  "stash",  "state",   "weight",   "working"};
static_assert(texts.size() == static_cast<size_t>(SlotKind::Working) + 1);

std::string_view text(SlotKind kind) { return texts[static_cast<size_t>(kind)]; }

SlotKind slotKindOf(std::string_view text) {
  const auto found = std::find(texts.begin(), texts.end(), text);
  return found == texts.end() ? SlotKind::None : static_cast<SlotKind>(found - texts.begin());
}

bool isMetric(SlotKind kind) {
  return kind == SlotKind::Loss || kind == SlotKind::Weight || kind == SlotKind::Correct || kind == SlotKind::Invalid;
}

std::string metricName(SlotKind kind, std::string_view name) {
  std::string full(text(kind));
  return name.empty() ? full : full.append(".").append(name);
}

} // namespace cleave::ir
