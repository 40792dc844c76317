// Meshes and shardings as value structs: no MLIR, so algorithms and tests write them down literally.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <unordered_set>
#include <vector>

namespace cleave {

/// A mesh axis: its name ("dp", "tp", "pp") and how many devices lie along it.
struct MeshAxis {
  std::string name;
  int64_t size = 1;
  bool operator==(const MeshAxis &) const = default;
};

/// Devices as a grid. Axes are listed dp, tp, pp; rank = (pp * DP + dp) * TP + tp.
struct Mesh {
  std::vector<MeshAxis> axes;
  /// Size of an axis; 1 for a name the mesh does not have.
  int64_t size(const std::string &axis) const;
  /// Product over several axes.
  int64_t size(const std::vector<std::string> &names) const;
  int64_t ranks() const;
  /// Coordinates of a rank, in the order of `axes`.
  std::vector<int64_t> coords(int64_t rank) const;
  int64_t rank(const std::vector<int64_t> &coords) const;
  /// Linear coordinate of `coords` along `names`, major to minor as listed.
  int64_t linear(const std::vector<std::string> &names, const std::vector<int64_t> &coords) const;
  bool operator==(const Mesh &) const = default;
};

/// `size` elements split over `axes` (none: not split); the remainder goes to the first ranks.
struct Factor {
  int64_t size = 1;
  std::vector<std::string> axes;
  bool operator==(const Factor &) const = default;
};

/// Elements of a factor that the member at linear coordinate `at` of `parts` holds, and where they begin.
int64_t shareSize(int64_t size, int64_t parts, int64_t at);
int64_t shareStart(int64_t size, int64_t parts, int64_t at);

/// A dimension: the product of its factors, major first. In the text form a factor's size may be left to the tensor's
/// shape (`dp`); it is then 0 until `resolve` fills it in.
struct DimSharding {
  std::vector<Factor> factors;
  bool split() const;
  bool operator==(const DimSharding &) const = default;
};

/// How a tensor lies on the mesh: a list of factors per dimension, and the axes over which it is still to be reduced.
struct Sharding {
  std::vector<DimSharding> dims;
  std::vector<std::string> partialAxes;
  std::string partialKind = "sum";

  static Sharding replicated(const std::vector<int64_t> &shape);
  /// Reads the text form: `dp, _, (3 x 4:tp x 16) | sum pp`. Empty with `why` filled in where it is malformed.
  static std::optional<Sharding> parse(const std::string &text, std::string *why = nullptr);
  std::string str() const;
  /// Fills in sizes left open, and merges neighbouring factors that are not split. False where sizes do not fit the
  /// shape.
  bool resolve(const std::vector<int64_t> &shape);
  /// Brings equal layouts into one form, so that they compare as equal: axes of size 1 are dropped, and neighbouring
  /// factors become one where every rank then holds the same elements. Over tp = 2, `(4:tp x 16)` is `64:tp`; 5:tp x 16
  /// stays, as its shares are 48 and 32.
  void normalise(const Mesh &mesh);
  bool isReplicated() const;
  /// Whether a dimension is split over the axis.
  bool splitsOver(const std::string &axis) const;
  /// Whether a dimension is split or a sum is open over it.
  bool usesAxis(const std::string &axis) const;
  /// Shape of this rank's piece.
  std::vector<int64_t> localShape(const Mesh &mesh, const std::vector<int64_t> &coords) const;
  bool operator==(const Sharding &) const = default;
};

/// Shardings, each kept once: equal ones have one address, for as long as the set lives.
class ShardingSet {
public:
  const Sharding *add(Sharding sharding) { return &*kept.insert(std::move(sharding)).first; }

private:
  struct Hash {
    size_t operator()(const Sharding &sharding) const;
  };
  std::unordered_set<Sharding, Hash> kept;
};

/// A factor of a dimension of a sharding.
struct FactorPlace {
  size_t dim = 0, factor = 0;
};

/// The one factor that `to` splits over exactly the axes along which it finishes `from`'s sums, in a dimension that
/// `from` does not split and `to` splits nowhere else. Such a reshard is a reduce-scatter; nothing where it is not.
std::optional<FactorPlace> scatterPlace(const Mesh &mesh, const Sharding &from, const Sharding &to);

} // namespace cleave
