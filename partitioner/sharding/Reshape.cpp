// Regrouping factors across a reshape.
#include "partitioner/sharding/Reshape.h"

#include <algorithm>

namespace cleave::partitioner {

std::optional<Sharding> reshapeSharding(const Sharding &sharding, const std::vector<int64_t> &from,
                                        const std::vector<int64_t> &to, const Mesh &mesh) {
  std::vector<Factor> rest; // factors still to be placed, last first
  for (auto dim = sharding.dims.rbegin(); dim != sharding.dims.rend(); ++dim)
    for (auto factor = dim->factors.rbegin(); factor != dim->factors.rend(); ++factor)
      rest.push_back(*factor);
  Sharding result;
  result.partialAxes = sharding.partialAxes;
  result.partialKind = sharding.partialKind;
  for (int64_t size : to) {
    DimSharding dim;
    int64_t need = size;
    while (need > 1) {
      while (!rest.empty() && rest.back().size == 1 && rest.back().axes.empty())
        rest.pop_back();
      if (rest.empty())
        return std::nullopt;
      Factor factor = rest.back();
      rest.pop_back();
      if (need % factor.size == 0) {
        dim.factors.push_back(factor);
        need /= factor.size;
        continue;
      }
      // The factor's major part fills this dimension, the rest goes on to the next.
      if (factor.size % need != 0 || (!factor.axes.empty() && need % mesh.size(factor.axes) != 0))
        return std::nullopt;
      rest.push_back({factor.size / need, {}});
      dim.factors.push_back({need, factor.axes});
      need = 1;
    }
    if (dim.factors.empty())
      dim.factors.push_back({1, {}});
    result.dims.push_back(dim);
  }
  for (const Factor &factor : rest)
    if (factor.size != 1 || !factor.axes.empty())
      return std::nullopt;
  if (!result.resolve(to))
    return std::nullopt;
  return result;
}

Sharding reshapeOrGather(Sharding &sharding, const std::vector<int64_t> &from, const std::vector<int64_t> &to,
                         const Mesh &mesh) {
  if (auto result = reshapeSharding(sharding, from, to, mesh))
    return *result;
  // Give up one split dimension, the last first (the batch is usually the first), then all.
  for (size_t d = from.size(); d-- > 0;) {
    if (!sharding.dims[d].split())
      continue;
    Sharding less = sharding;
    less.dims[d] = {{{from[d], {}}}};
    if (auto result = reshapeSharding(less, from, to, mesh)) {
      sharding = less;
      return *result;
    }
  }
  Sharding whole = Sharding::replicated(from);
  whole.partialAxes = sharding.partialAxes;
  whole.partialKind = sharding.partialKind;
  sharding = whole;
  return *reshapeSharding(whole, from, to, mesh);
}

} // namespace cleave::partitioner
