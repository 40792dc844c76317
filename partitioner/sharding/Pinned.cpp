// Matches patterns of module paths, and reads and writes the split of one dimension as text.
#include "partitioner/sharding/Pinned.h"

#include "partitioner/strategy/ShardKey.h"
#include "runtime/base/Error.h"

#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <string_view>

namespace cleave::partitioner {

DimSharding parseAxesSplit(const std::string &axes, int64_t size, const Mesh &mesh, const std::string &where) {
  Factor factor{size, {}};
  for (size_t begin = 0; !axes.empty() && begin <= axes.size();) {
    const size_t end = std::min(axes.find('+', begin), axes.size());
    const std::string axis = axes.substr(begin, end - begin);
    begin = end + 1;
    auto known = [&](const MeshAxis &a) { return a.name == axis; };
    if (std::none_of(mesh.axes.begin(), mesh.axes.end(), known) || !splitsTensors(axis))
      throw userError(
          fmt::format("{}: axis \"{}\" is unknown; a tensor is split over {}", where, axis, splittingAxesText()));
    if (std::find(factor.axes.begin(), factor.axes.end(), axis) != factor.axes.end())
      throw userError(fmt::format("{}: axis {} is named twice in \"{}\"", where, axis, axes));
    if (mesh.size(axis) > 1)
      factor.axes.push_back(axis);
  }
  if (mesh.size(factor.axes) > size)
    throw userError(
        fmt::format("{}: {} elements cannot be split {} ways over {}", where, size, mesh.size(factor.axes), axes));
  return {{factor}};
}

void refuseRepeatedAxes(const Sharding &sharding, const std::string &where) {
  std::vector<std::string> seen;
  for (const DimSharding &dim : sharding.dims)
    for (const Factor &factor : dim.factors)
      for (const std::string &axis : factor.axes) {
        if (std::find(seen.begin(), seen.end(), axis) != seen.end())
          throw userError(fmt::format("{}: axis {} splits a tensor once, here it splits it twice", where, axis));
        seen.push_back(axis);
      }
}

// Whether two splits view the dimension as the same factors.
static bool sameFactors(const DimSharding &a, const DimSharding &b) {
  return std::equal(a.factors.begin(), a.factors.end(), b.factors.begin(), b.factors.end(),
                    [](const Factor &x, const Factor &y) { return x.size == y.size; });
}

// Applies a key such as "0" or "0:3x4x16.1". Several keys of the second form for one dimension must have the same
// factors; each splits one of them.
static void applyEntry(Sharding &sharding, const ShardKey &key, const std::string &axes,
                       const std::vector<int64_t> &shape, const Mesh &mesh, const std::string &where) {
  const int64_t dim = key.dim;
  if (dim >= (int64_t)shape.size())
    throw userError(fmt::format("{}: dimension {} does not exist, the tensor has {}", where, dim, shape.size()));
  const auto refuse = [&] { throw userError(fmt::format("{}: dimension {} is split twice", where, dim)); };
  const bool again = sharding.dims[dim].split();
  if (key.factors.empty()) {
    if (again)
      refuse();
    sharding.dims[dim] = parseAxesSplit(axes, shape[dim], mesh, where);
    return;
  }
  const size_t which = key.factor;
  DimSharding split;
  int64_t product = 1;
  for (const int64_t size : key.factors) {
    const bool chosen = split.factors.size() == which;
    split.factors.push_back(chosen ? parseAxesSplit(axes, size, mesh, where).factors[0] : Factor{size, {}});
    if (__builtin_mul_overflow(product, size, &product))
      product = -1;
  }
  if (product != shape[dim])
    throw userError(fmt::format("{}: the factors {} do not multiply to dimension {} = {}", where,
                                fmt::join(key.factors, "x"), dim, shape[dim]));
  if (again && (!sameFactors(sharding.dims[dim], split) || !sharding.dims[dim].factors[which].axes.empty()))
    refuse();
  if (again)
    sharding.dims[dim].factors[which] = split.factors[which];
  else
    sharding.dims[dim] = split;
}

std::map<std::string, std::string> splitTexts(const DimSharding &dim, size_t number) {
  std::string sizes;
  for (const Factor &factor : dim.factors)
    sizes += (sizes.empty() ? "" : "x") + std::to_string(factor.size);
  std::map<std::string, std::string> texts;
  for (size_t f = 0; f < dim.factors.size(); ++f)
    if (!dim.factors[f].axes.empty())
      texts[dim.factors.size() == 1 ? std::to_string(number) : fmt::format("{}:{}.{}", number, sizes, f)] =
          fmt::format("{}", fmt::join(dim.factors[f].axes, "+"));
  return texts;
}

static void splitHeads(Sharding &sharding, const std::optional<HeadsPlace> &heads, const std::string &axes,
                       const Mesh &mesh, const std::string &where) {
  if (!heads)
    throw userError(fmt::format("{}: no dimension of this tensor becomes the heads of an attention", where));
  if (sharding.dims[heads->dim].split())
    throw userError(fmt::format("{}: dimension {}, which has the heads, is split twice", where, heads->dim));
  DimSharding split;
  for (size_t f = 0; f < heads->sizes.size(); ++f)
    split.factors.push_back(f == heads->factor ? parseAxesSplit(axes, heads->sizes[f], mesh, where).factors[0]
                                               : Factor{heads->sizes[f], {}});
  sharding.dims[heads->dim] = split;
}

std::optional<Sharding> pinnedSharding(const std::string &name, const std::vector<int64_t> &shape,
                                       const Decisions &strategy,
                                       const std::function<std::optional<HeadsPlace>()> &headsOf) {
  std::optional<Sharding> result;
  for (const ShardRule &rule : strategy.shard) {
    if (!matches(rule.pattern, name))
      continue;
    result = Sharding::replicated(shape);
    std::string where = fmt::format("sharding of {} (rule \"{}\")", name, rule.pattern);
    for (auto &[text, axes] : rule.dims) {
      const std::optional<ShardKey> key = ShardKey::parse(text);
      if (!key)
        throw userError(fmt::format("{}: \"{}\" is not a dimension", where, text));
      if (key->heads)
        splitHeads(*result, headsOf(), axes, strategy.mesh, where);
      else
        applyEntry(*result, *key, axes, shape, strategy.mesh, where);
    }
    refuseRepeatedAxes(*result, where);
    result->resolve(shape);
  }
  return result;
}

} // namespace cleave::partitioner
