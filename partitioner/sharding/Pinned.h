// Shardings that the user wrote down: rules of a strategy, marks in code.
#pragma once
#include "ir/dist/Sharding.h"
#include "partitioner/strategy/Strategy.h"

#include <functional>
#include <map>
#include <optional>

namespace cleave::partitioner {

/// "tp" or "dp+tp" as the split of one dimension. Throws userError naming `where`, an axis the mesh lacks, or a size
/// smaller than the split.
DimSharding parseAxesSplit(const std::string &axes, int64_t size, const Mesh &mesh, const std::string &where);

/// Throws userError naming `where` and an axis that splits more than one dimension or factor.
void refuseRepeatedAxes(const Sharding &sharding, const std::string &where);

/// A dimension of a tensor and the factor of it that becomes the heads of an attention.
struct HeadsPlace {
  size_t dim = 0, factor = 0;
  std::vector<int64_t> sizes; ///< of the dimension's factors, major first
};

/// What the strategy's rules say of a tensor; the last rule that matches wins. A key is a dimension's number; for one
/// split in the middle `"0:3x4x16.1" = "tp"`: dimension 0 seen as factors 3, 4, 16, of which factor 1 is split; or
/// `heads`, for what `headsOf` finds. Throws userError naming the rule for a key, an axis or a size that cannot be.
std::optional<Sharding> pinnedSharding(const std::string &name, const std::vector<int64_t> &shape,
                                       const Strategy &strategy,
                                       const std::function<std::optional<HeadsPlace>()> &headsOf);

/// A dimension's split as keys and axes of a rule, one for each factor that is split. The reverse of what
/// pinnedSharding reads.
std::map<std::string, std::string> splitTexts(const DimSharding &dim, size_t number);

/// `*` stands for any run of characters without a dot.
bool matches(const std::string &pattern, const std::string &name);

} // namespace cleave::partitioner
