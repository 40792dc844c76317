// Implements collectives of one buffer by Communicator::run, and names messages.
#include "runtime/comm/Communicator.h"

#include "runtime/plan/plan_generated.h"

#include <fmt/format.h>

namespace cleave {

using plan::CollectiveKind;
using plan::ReduceKind;

void Communicator::allReduce(const void *in, void *out, int64_t count, plan::DType dtype, ReduceKind reduce) {
  CollectivePart part{.in = in, .out = out, .count = count};
  run(CollectiveKind::AllReduce, reduce, dtype, {&part, 1});
}

void Communicator::allGather(const void *in, void *out, int64_t outer, int64_t inner, std::span<const int64_t> sizes,
                             plan::DType dtype) {
  CollectivePart part{.in = in, .out = out, .outer = outer, .inner = inner, .sizes = sizes};
  run(CollectiveKind::AllGather, ReduceKind::Sum, dtype, {&part, 1});
}

void Communicator::reduceScatter(const void *in, void *out, int64_t outer, int64_t inner,
                                 std::span<const int64_t> sizes, plan::DType dtype, ReduceKind reduce) {
  CollectivePart part{.in = in, .out = out, .outer = outer, .inner = inner, .sizes = sizes};
  run(CollectiveKind::ReduceScatter, reduce, dtype, {&part, 1});
}

void Communicator::allToAll(const void *in, void *out, int64_t count, plan::DType dtype) {
  CollectivePart part{.in = in, .out = out, .count = count};
  run(CollectiveKind::AllToAll, ReduceKind::Sum, dtype, {&part, 1});
}

void Communicator::broadcast(const void *in, void *out, int64_t count, plan::DType dtype) {
  CollectivePart part{.in = in, .out = out, .count = count};
  run(CollectiveKind::Broadcast, ReduceKind::Sum, dtype, {&part, 1});
}

std::string messageName(uint32_t tag, int32_t microbatch) {
  if (tag == setupTag && microbatch == setupMicrobatch)
    return "what rank 0 gathers";
  return microbatch < 0 ? fmt::format("message {}", tag) : fmt::format("message {} of microbatch {}", tag, microbatch);
}

} // namespace cleave
