// Ranges for tools such as Nsight Systems (NVTX, domain "cleave"): what the host is putting into the streams, by
// segment and module path. Without a tool (NVTX looks for one in NVTX_INJECTION64_PATH) there is no domain, and a range
// is a comparison with null.
#pragma once
#include <cstdint>
#include <string>

namespace cleave::cuda {

/// A text as a tool knows it; null where there is no tool, or no text.
using RangeName = const void *;
/// Equal texts give equal names. Registers the text, so not to be called inside an iteration.
RangeName rangeName(const std::string &text);

/// On the thread that makes it, for as long as it lives; ranges nest. None where the name is null.
class Range {
public:
  /// `number` (a step, a microbatch; none where it is negative) goes along as the payload.
  explicit Range(RangeName name, int64_t number = -1);
  Range(const Range &) = delete;
  ~Range();

private:
  bool open;
};

} // namespace cleave::cuda
