// Shardings that the user wrote down: rules of a strategy, marks in code.
#pragma once
#include "ir/dist/Sharding.h"
#include "partitioner/strategy/Decisions.h"
#include "partitioner/strategy/Pattern.h"

#include <functional>
#include <map>
#include <optional>

namespace cleave::partitioner {

/// Parses "tp" or "dp+tp" as the split of one dimension. Throws userError with `where` for an axis that the mesh lacks,
/// or a size smaller than the split.
DimSharding parseAxesSplit(const std::string &axes, int64_t size, const Mesh &mesh, const std::string &where);

/// Throws userError with `where` and the axis if an axis splits more than one dimension or factor.
void refuseRepeatedAxes(const Sharding &sharding, const std::string &where);

/// A dimension of a tensor and the factor of it that becomes the heads of an attention.
struct HeadsPlace {
  size_t dim = 0, factor = 0;
  std::vector<int64_t> sizes; ///< of the dimension's factors, major first
};

/// The sharding that the strategy's rules demand of a tensor; the last rule that matches wins. A key of a rule is the
/// number of a dimension, or for a split factor `"0:3x4x16.1" = "tp"`: dimension 0 viewed as factors 3, 4, 16, of which
/// factor 1 is split; or `heads`: the factor that `headsOf` returns. Throws userError with the rule for an impossible
/// key, axis or size.
std::optional<Sharding> pinnedSharding(const std::string &name, const std::vector<int64_t> &shape,
                                       const Decisions &strategy,
                                       const std::function<std::optional<HeadsPlace>()> &headsOf);

/// The split of a dimension as keys and axes of a rule, one entry for each split factor. The inverse of pinnedSharding.
std::map<std::string, std::string> splitTexts(const DimSharding &dim, size_t number);

} // namespace cleave::partitioner
