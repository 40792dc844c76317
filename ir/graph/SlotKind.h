// What an argument or result of a function stands for: the attribute `cleave.kind`. No MLIR in this header.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace cleave::ir {

enum class SlotKind : uint8_t {
  None,      ///< no attribute, or another text
  Buffer,    ///< kept between iterations by the model, such as running statistics
  Correct,   ///< the number of correct predictions
  Gradient,  ///< of a parameter
  Input,     ///< a batch of the data
  Invalid,   ///< the number of computed indices that no element has
  Loss,      ///< the sum of a term of the loss over the samples
  Metric,    ///< a loss, weight or count, summed over microbatches and ranks
  Output,    ///< what a prediction returns
  Parameter, ///< trained, or frozen
  Scalar,    ///< written by the host: learning rate, number of the step
  Stash,     ///< an activation that a later segment of the microbatch reads
  State,     ///< kept between iterations by the optimizer or the loss scaling
  Weight,    ///< the number of samples or positions that a term counts
  Working    ///< a copy of a parameter in half precision, made once an iteration
};

/// Stands for no value that an index may have; no i32 is equal to it.
inline constexpr int64_t noIndex = -(int64_t(1) << 40);

/// The text of the attribute; empty for None. None for a text that is no kind.
std::string_view text(SlotKind kind);
SlotKind slotKindOf(std::string_view text);

/// Whether results of this kind are summed over microbatches and ranks: loss, weight, correct, invalid.
bool isMetric(SlotKind kind);
/// The name under which a metric is accumulated and reported: "loss", or "loss.1" for a further term of the loss.
std::string metricName(SlotKind kind, std::string_view name);

} // namespace cleave::ir
