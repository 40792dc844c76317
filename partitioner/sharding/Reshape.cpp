// Regroups factors across a reshape.
#include "partitioner/sharding/Reshape.h"

#include <algorithm>

namespace cleave::partitioner {
namespace {

// All factors of a tensor as a stack, the first in row-major order on top; neighbours that are not split are merged.
std::vector<Factor> flattened(const Sharding &sharding) {
  std::vector<Factor> flat;
  for (const DimSharding &dim : sharding.dims)
    for (const Factor &factor : dim.factors) {
      if (!flat.empty() && flat.back().axes.empty() && factor.axes.empty())
        flat.back().size *= factor.size;
      else
        flat.push_back(factor);
    }
  std::erase_if(flat, [](const Factor &factor) { return factor.size == 1 && factor.axes.empty(); });
  std::reverse(flat.begin(), flat.end());
  return flat;
}

// Cuts a factor into `need` (major) times the rest, both split so that each rank keeps its elements; empty if that is
// impossible.
std::optional<std::pair<Factor, Factor>> opened(const Factor &factor, int64_t need, const Mesh &mesh) {
  if (factor.size % need != 0)
    return std::nullopt;
  const int64_t rest = factor.size / need;
  if (need % mesh.size(factor.axes) == 0) // every share is whole rows of `rest` elements
    return std::pair{Factor{need, factor.axes}, Factor{rest, {}}};
  for (size_t major = 1; major < factor.axes.size(); ++major) {
    std::vector<std::string> first(factor.axes.begin(), factor.axes.begin() + major),
        second(factor.axes.begin() + major, factor.axes.end());
    if (mesh.size(first) == need && rest % mesh.size(second) == 0)
      return std::pair{Factor{need, first}, Factor{rest, second}};
  }
  return std::nullopt;
}

// Takes the factors of one dimension of `size` elements off the stack.
std::optional<DimSharding> takeDim(std::vector<Factor> &rest, int64_t size, const Mesh &mesh) {
  DimSharding dim;
  for (int64_t need = size; need > 1;) {
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
    auto parts = opened(factor, need, mesh);
    if (!parts)
      return std::nullopt;
    dim.factors.push_back(parts->first);
    rest.push_back(parts->second);
    need = 1;
  }
  if (dim.factors.empty())
    dim.factors.push_back({1, {}});
  return dim;
}

} // namespace

std::optional<Sharding> reshapeSharding(const Sharding &sharding, const std::vector<int64_t> &from,
                                        const std::vector<int64_t> &to, const Mesh &mesh) {
  std::vector<Factor> rest = flattened(sharding);
  Sharding result;
  result.partialAxes = sharding.partialAxes;
  result.partialKind = sharding.partialKind;
  for (int64_t size : to) {
    auto dim = takeDim(rest, size, mesh);
    if (!dim)
      return std::nullopt;
    result.dims.push_back(std::move(*dim));
  }
  if (!rest.empty() || !result.resolve(to))
    return std::nullopt;
  result.normalise(mesh);
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
  Sharding whole = Sharding::replicated(from), result = Sharding::replicated(to);
  whole.partialAxes = result.partialAxes = sharding.partialAxes;
  whole.partialKind = result.partialKind = sharding.partialKind;
  sharding = whole;
  return result;
}

} // namespace cleave::partitioner
