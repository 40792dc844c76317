// Shardings: sizes of shares, and the text form.
#include "ir/dist/Sharding.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <numeric>

namespace cleave {

int64_t shareSize(int64_t size, int64_t parts, int64_t at) { return size / parts + (at < size % parts ? 1 : 0); }
int64_t shareStart(int64_t size, int64_t parts, int64_t at) { return at * (size / parts) + std::min(at, size % parts); }

bool DimSharding::split() const {
  return std::any_of(factors.begin(), factors.end(), [](const Factor &f) { return !f.axes.empty(); });
}

Sharding Sharding::replicated(const std::vector<int64_t> &shape) {
  Sharding result;
  for (int64_t size : shape)
    result.dims.push_back({{{size, {}}}});
  return result;
}

namespace {

std::string trim(const std::string &text) {
  size_t begin = 0, end = text.size();
  while (begin < end && std::isspace((unsigned char)text[begin]))
    ++begin;
  while (end > begin && std::isspace((unsigned char)text[end - 1]))
    --end;
  return text.substr(begin, end - begin);
}

// Splits at `separator` outside parentheses.
std::vector<std::string> splitOutside(const std::string &text, char separator) {
  std::vector<std::string> parts(1);
  int depth = 0;
  for (char c : text) {
    depth += (c == '(') - (c == ')');
    if (c == separator && depth == 0)
      parts.emplace_back();
    else
      parts.back() += c;
  }
  for (std::string &part : parts)
    part = trim(part);
  return parts;
}

bool parseAxes(const std::string &text, std::vector<std::string> &axes, std::string &why) {
  for (const std::string &name : splitOutside(text, '+')) {
    bool word = !name.empty() &&
                std::all_of(name.begin(), name.end(), [](unsigned char c) { return std::isalnum(c) || c == '_'; });
    if (!word || std::isdigit((unsigned char)name[0])) {
      why = "\"" + name + "\" is not an axis name";
      return false;
    }
    axes.push_back(name);
  }
  return true;
}

bool parseFactor(const std::string &text, Factor &factor, std::string &why) {
  size_t colon = text.find(':');
  std::string number = trim(text.substr(0, colon));
  if (number.empty() || number.size() > 15 ||
      !std::all_of(number.begin(), number.end(), [](unsigned char c) { return std::isdigit(c); }) ||
      (factor.size = std::stoll(number)) < 1) {
    why = "\"" + number + "\" is not a factor's size";
    return false;
  }
  return colon == std::string::npos || parseAxes(trim(text.substr(colon + 1)), factor.axes, why);
}

bool parseDim(const std::string &text, DimSharding &dim, std::string &why) {
  if (text == "_") {
    dim.factors.push_back({0, {}});
    return true;
  }
  if (text.size() >= 2 && text.front() == '(' && text.back() == ')') {
    for (const std::string &part : splitOutside(text.substr(1, text.size() - 2), 'x')) {
      Factor factor;
      if (!parseFactor(part, factor, why))
        return false;
      dim.factors.push_back(factor);
    }
    return true;
  }
  Factor factor{0, {}};
  if (!parseAxes(text, factor.axes, why))
    return false;
  dim.factors.push_back(factor);
  return true;
}

std::string join(const std::vector<std::string> &names) {
  std::string text;
  for (const std::string &name : names)
    text += (text.empty() ? "" : "+") + name;
  return text;
}

} // namespace

static constexpr std::array<std::string_view, 4> partialKinds = {"sum", "max", "min", "or"};

std::string_view text(PartialKind kind) { return partialKinds[static_cast<size_t>(kind)]; }

std::optional<PartialKind> partialKindOf(std::string_view text) {
  const auto found = std::find(partialKinds.begin(), partialKinds.end(), text);
  return found == partialKinds.end() ? std::nullopt
                                     : std::optional(static_cast<PartialKind>(found - partialKinds.begin()));
}

std::optional<Sharding> Sharding::parse(const std::string &text, std::string *why) {
  std::string reason;
  auto fail = [&]() -> std::optional<Sharding> {
    if (why)
      *why = reason;
    return std::nullopt;
  };
  Sharding result;
  size_t bar = text.find('|');
  std::string dims = trim(text.substr(0, bar));
  if (!dims.empty())
    for (const std::string &part : splitOutside(dims, ',')) {
      DimSharding dim;
      if (!parseDim(part, dim, reason))
        return fail();
      result.dims.push_back(dim);
    }
  if (bar != std::string::npos) {
    std::string partial = trim(text.substr(bar + 1));
    size_t space = partial.find(' ');
    const std::optional<PartialKind> kind = partialKindOf(partial.substr(0, space));
    if (space == std::string::npos || !kind) {
      reason = "\"" + partial + "\" is not `sum|max|min|or axes`";
      return fail();
    }
    result.partialKind = *kind;
    if (!parseAxes(trim(partial.substr(space)), result.partialAxes, reason))
      return fail();
  }
  std::vector<std::string> seen = result.partialAxes;
  for (const DimSharding &dim : result.dims)
    for (const Factor &factor : dim.factors)
      for (const std::string &axis : factor.axes) {
        if (std::find(seen.begin(), seen.end(), axis) != seen.end()) {
          reason = "axis " + axis + " is used twice";
          return fail();
        }
        seen.push_back(axis);
      }
  return result;
}

std::string Sharding::str() const {
  std::string text;
  for (size_t d = 0; d < dims.size(); ++d) {
    text += d ? ", " : "";
    const auto &factors = dims[d].factors;
    if (factors.size() == 1) {
      text += factors[0].axes.empty() ? "_" : join(factors[0].axes);
      continue;
    }
    text += "(";
    for (size_t f = 0; f < factors.size(); ++f) {
      text += (f ? " x " : "") + std::to_string(factors[f].size);
      if (!factors[f].axes.empty())
        text += ":" + join(factors[f].axes);
    }
    text += ")";
  }
  if (!partialAxes.empty())
    text += (text.empty() ? "| " : " | ") + std::string(cleave::text(partialKind)) + " " + join(partialAxes);
  return text;
}

bool Sharding::resolve(const std::vector<int64_t> &shape) {
  if (shape.size() != dims.size())
    return false;
  for (size_t d = 0; d < dims.size(); ++d) {
    std::vector<Factor> merged;
    int64_t product = 1;
    for (Factor factor : dims[d].factors) {
      if (factor.size == 0)
        factor.size = shape[d];
      product *= factor.size;
      if (factor.axes.empty() && !merged.empty() && merged.back().axes.empty())
        merged.back().size *= factor.size;
      else
        merged.push_back(factor);
    }
    if (merged.size() > 1)
      std::erase_if(merged, [](const Factor &f) { return f.axes.empty() && f.size == 1; });
    if (product != shape[d] || merged.empty())
      return false;
    dims[d].factors = merged;
  }
  return true;
}

// Merges `minor` into `major` if the merged factor's shares hold the same elements; otherwise returns false.
static bool joinFactors(Factor &major, const Factor &minor, const Mesh &mesh) {
  const int64_t parts = mesh.size(major.axes), minorParts = mesh.size(minor.axes);
  const bool evenRows = minor.axes.empty() && major.size % parts == 0;
  const bool grid = !minor.axes.empty() && !major.axes.empty() && major.size == parts && minor.size % minorParts == 0;
  if (!evenRows && !grid)
    return false;
  major.size *= minor.size;
  major.axes.insert(major.axes.end(), minor.axes.begin(), minor.axes.end());
  return true;
}

void Sharding::normalise(const Mesh &mesh) {
  for (DimSharding &dim : dims) {
    std::vector<Factor> joined;
    for (Factor factor : dim.factors) {
      std::erase_if(factor.axes, [&](const std::string &axis) { return mesh.size(axis) == 1; });
      if (!joined.empty() && factor.size == 1 && factor.axes.empty())
        continue;
      if (joined.size() == 1 && joined[0].size == 1 && joined[0].axes.empty())
        joined.clear();
      if (joined.empty() || !joinFactors(joined.back(), factor, mesh))
        joined.push_back(std::move(factor));
    }
    dim.factors = std::move(joined);
  }
}

bool Sharding::isReplicated() const {
  return partialAxes.empty() && std::none_of(dims.begin(), dims.end(), [](const DimSharding &d) { return d.split(); });
}

static bool has(const std::vector<std::string> &axes, const std::string &axis) {
  return std::find(axes.begin(), axes.end(), axis) != axes.end();
}

bool Sharding::splitsOver(const std::string &axis) const {
  for (const DimSharding &dim : dims)
    for (const Factor &factor : dim.factors)
      if (has(factor.axes, axis))
        return true;
  return false;
}

bool Sharding::splitsOver(AxisRole role) const {
  for (const DimSharding &dim : dims)
    for (const Factor &factor : dim.factors)
      if (hasRole(factor.axes, role))
        return true;
  return false;
}

bool Sharding::isPartialOver(AxisRole role) const { return hasRole(partialAxes, role); }

bool Sharding::usesAxis(AxisRole role) const { return splitsOver(role) || isPartialOver(role); }

std::vector<int64_t> Sharding::localShape(const Mesh &mesh, const std::vector<int64_t> &coords) const {
  std::vector<int64_t> shape;
  for (const DimSharding &dim : dims) {
    int64_t size = 1;
    for (const Factor &factor : dim.factors)
      size *= shareSize(factor.size, mesh.size(factor.axes), mesh.linear(factor.axes, coords));
    shape.push_back(size);
  }
  return shape;
}

std::optional<FactorPlace> scatterPlace(const Mesh &mesh, const Sharding &from, const Sharding &to) {
  auto several = [&](std::vector<std::string> axes) {
    std::erase_if(axes, [&](const std::string &axis) { return mesh.size(axis) == 1; });
    std::sort(axes.begin(), axes.end());
    return axes;
  };
  std::vector<std::string> finished = several(from.partialAxes);
  for (const std::string &axis : to.partialAxes)
    std::erase(finished, axis);
  if (finished.empty())
    return std::nullopt;
  for (size_t d = 0; d < to.dims.size(); ++d) {
    const std::vector<Factor> &factors = to.dims[d].factors;
    auto split = [&](const Factor &factor) { return mesh.size(factor.axes) > 1; };
    if (std::any_of(from.dims[d].factors.begin(), from.dims[d].factors.end(), split) ||
        std::count_if(factors.begin(), factors.end(), split) != 1)
      continue;
    size_t at = std::find_if(factors.begin(), factors.end(), split) - factors.begin();
    if (several(factors[at].axes) == finished)
      return FactorPlace{d, at};
  }
  return std::nullopt;
}

} // namespace cleave
