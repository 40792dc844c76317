// Decides where in its schedule a rank waits until the messages that it has sent are received.
#pragma once
#include "partitioner/apply/LocalPrograms.h"

#include <cstddef>
#include <map>
#include <tuple>
#include <vector>

namespace cleave::passes {

/// The item of a position's schedule that waits until a sent message has been received, chosen so that the sent value
/// is kept no longer than needed:
/// - for a message of "forward", the item in which the microbatch returns to its stage ("backward", or
///   "input_gradient", or "weight_gradient");
/// - for any other message, the second later item of the same segment, or the first item that follows the microbatches;
///   but if the receiver reaches the message later than that, an item a little after the receipt, so that a rank that
///   is far ahead continues. For this estimate all items take equally long, a joined backward pass twice as long.
/// Schedules in which ranks run several stages may deadlock with these waits; waits that block all ranks are moved to
/// later items.
class SendWaits {
public:
  /// Throws an internal error that names an item if the schedules block each other without waits.
  SendWaits(const partitioner::LocalPrograms &applied, bool evaluation);

  /// The index of the item; the number of items if the wait is after the last one.
  size_t itemOf(int64_t position, int64_t tag, int64_t microbatch) const {
    return waits.at({position, tag, microbatch});
  }

private:
  std::map<std::tuple<int64_t, int64_t, int64_t>, size_t> waits; // by position, tag, microbatch
};

} // namespace cleave::passes
