// Shardings as value structs without MLIR, so that tests can write them as literals.
#pragma once
#include "runtime/base/Mesh.h"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace cleave {

/// `size` elements split over `axes` (empty: not split). The remainder goes to the first ranks.
struct Factor {
  int64_t size = 1;
  std::vector<std::string> axes;
  bool operator==(const Factor &) const = default;
};

/// Number and first index of the elements that part `at` of `parts` holds.
int64_t shareSize(int64_t size, int64_t parts, int64_t at);
int64_t shareStart(int64_t size, int64_t parts, int64_t at);

/// A dimension: the product of its factors, major first. The text form may omit a factor's size (`dp`); it is 0 until
/// `resolve` sets it.
struct DimSharding {
  std::vector<Factor> factors;
  bool split() const;
  bool operator==(const DimSharding &) const = default;
};

/// How the terms of a partial value are combined.
enum class PartialKind : uint8_t { Sum, Max, Min, Or };
std::string_view text(PartialKind kind); ///< "sum", "max", "min", "or"
std::optional<PartialKind> partialKindOf(std::string_view text);

/// The layout of a tensor on the mesh: factors per dimension, and the axes over which the value is partial.
struct Sharding {
  std::vector<DimSharding> dims;
  std::vector<std::string> partialAxes;
  PartialKind partialKind = PartialKind::Sum;

  static Sharding replicated(const std::vector<int64_t> &shape);
  /// Parses the text form: `dp, _, (3 x 4:tp x 16) | sum pp`. Returns nullopt and sets `why` if it is malformed.
  static std::optional<Sharding> parse(const std::string &text, std::string *why = nullptr);
  std::string str() const;
  /// Sets omitted sizes and merges neighbouring unsplit factors. Returns false if the sizes do not fit the shape.
  bool resolve(const std::vector<int64_t> &shape);
  /// Brings equal layouts into one form, so that they compare equal. Drops axes of size 1, and merges neighbouring
  /// factors if every rank then holds the same elements: with tp = 2, `(4:tp x 16)` becomes `64:tp`, but 5:tp x 16
  /// stays, because its shares are 48 and 32.
  void normalise(const Mesh &mesh);
  bool isReplicated() const;
  /// Whether a dimension is split over the axis.
  bool splitsOver(const std::string &axis) const;
  /// Whether a dimension is split over an axis with the role, whether the value is partial over one, and whether either
  /// holds.
  bool splitsOver(AxisRole role) const;
  bool isPartialOver(AxisRole role) const;
  bool usesAxis(AxisRole role) const;
  /// Shape of the piece at `coords`.
  std::vector<int64_t> localShape(const Mesh &mesh, const std::vector<int64_t> &coords) const;
  bool operator==(const Sharding &) const = default;
};

/// A factor of a dimension of a sharding.
struct FactorPlace {
  size_t dim = 0, factor = 0;
};

/// If the reshard `from` -> `to` is a reduce-scatter, returns the factor that it scatters: the only factor that `to`
/// splits over exactly the axes over which `from` is partial and `to` is not, in a dimension that `from` does not
/// split. Otherwise nullopt.
std::optional<FactorPlace> scatterPlace(const Mesh &mesh, const Sharding &from, const Sharding &to);

} // namespace cleave
