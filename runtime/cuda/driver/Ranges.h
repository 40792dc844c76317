// NVTX ranges (domain "cleave") for tools such as Nsight Systems: the work that the host enqueues, by segment and
// module path. Without a tool (NVTX looks for one in NVTX_INJECTION64_PATH) there is no domain, and a range costs one
// comparison.
#pragma once
#include <cstdint>
#include <string>

namespace cleave::cuda {

/// A registered string; null if there is no tool or the text is empty.
using RangeName = const void *;
/// Equal texts give equal names. Registers the text, so do not call it inside an iteration.
RangeName rangeName(const std::string &text);

/// A range on the current thread for the lifetime of this object; ranges nest. No range if the name is null.
class Range {
public:
  /// `number` (a step or microbatch; negative: none) is the payload.
  explicit Range(RangeName name, int64_t number = -1);
  Range(const Range &) = delete;
  ~Range();

private:
  bool open;
};

} // namespace cleave::cuda
