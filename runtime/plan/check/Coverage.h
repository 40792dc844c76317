// Tracks which bytes of a slot have been written.
#pragma once
#include "runtime/plan/check/Defects.h"

#include <optional>
#include <vector>

namespace cleave::check {

class Coverage {
public:
  void add(const Access &access);
  /// The first byte in [begin, begin + bytes) that `access` contains and that was not written.
  std::optional<uint64_t> missing(const Access &access, uint64_t begin, uint64_t bytes) const;

private:
  struct Range {
    uint64_t begin, end;
  };
  /// The first byte of [begin, end) outside all ranges; `end` if there is none.
  uint64_t firstOutside(uint64_t begin, uint64_t end) const;

  std::vector<Range> ranges; ///< ascending, disjoint
};

} // namespace cleave::check
