// Where a rank waits until what it has sent has been received.
#pragma once
#include "partitioner/apply/Applied.h"

#include <cstddef>
#include <map>
#include <tuple>
#include <vector>

namespace cleave::passes {

/// The item of a position's schedule that waits for a message. The usual one keeps the sent value no longer than
/// needed. A message of "forward" is waited for when the microbatch returns to its stage ("backward", or
/// "input_gradient", or "weight_gradient"), any other two items of the same segment later, or before what follows the
/// microbatches; but not before the receiver comes to it, and a little more, where all items take equally long (a
/// joined backward pass twice as long): a rank that is far ahead goes on. Schedules in which ranks run several stages
/// may deadlock with these waits; those that block all ranks move to later items.
class SendWaits {
public:
  /// Throws an internal error that names an item if the schedules block each other without waits.
  SendWaits(const partitioner::Applied &applied, bool evaluation);

  /// The index of the item; the number of items: after the last.
  size_t itemOf(int64_t position, int64_t tag, int64_t microbatch) const {
    return waits.at({position, tag, microbatch});
  }

private:
  std::map<std::tuple<int64_t, int64_t, int64_t>, size_t> waits; // by position, tag, microbatch
};

} // namespace cleave::passes
