// The numbers of a loop nest that its code for a CPU reads when it runs. Nests that differ only in these numbers have
// one code: the layers of a network repeat kernels in many sizes.
//
// In the code stay the numbers that decide its form or the forms of addresses: the stride of a vector's lanes, strides
// of 1, a vector loop of one step. Whether a vector loop has a rest is part of the key.
#pragma once
#include "passes/codegen/nest/LoopNest.h"

#include <map>
#include <optional>
#include <string>
#include <tuple>

namespace cleave::passes::kernel {

class Sizes {
public:
  /// None: all numbers are in the code.
  Sizes() = default;
  /// None, too, if the code works for any extent, or depends on its sizes in other ways.
  explicit Sizes(const LoopNest &nest);

  bool empty() const { return values.empty(); }
  /// The numbers: integers, or the bits of f32.
  const std::vector<uint64_t> &words() const { return values; }

  using Place = std::optional<size_t>; // among the words; none: the number is in the code
  Place extent(int loop) const { return find({Role::Extent, loop, 0}); }
  Place coefficient(int loop, int64_t value) const { return find({Role::Coefficient, loop, value}); }
  /// Of an Expr's constant.
  Place offset(int64_t value) const { return find({Role::Offset, 0, value}); }
  /// Of a LoopValue that is a constant.
  Place constant(int value) const { return find({Role::Constant, value, 0}); }

private:
  enum class Role : uint8_t { Extent, Coefficient, Offset, Constant };
  using Key = std::tuple<Role, int, int64_t>;
  Place find(const Key &key) const;
  void add(const Key &key, uint64_t word);
  void add(const LoopNest &nest, const Expr &e);

  std::map<Key, size_t> places;
  std::vector<uint64_t> values;
};

} // namespace cleave::passes::kernel
