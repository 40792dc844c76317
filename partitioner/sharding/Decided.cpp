// Reads and writes the texts of decisions.
#include "partitioner/sharding/Decided.h"

#include "partitioner/sharding/Pinned.h"
#include "runtime/base/Error.h"

#include <algorithm>
#include <fmt/format.h>
#include <map>
#include <regex>
#include <set>

namespace cleave::partitioner {
namespace {

constexpr const char *between = " ; ", *arrow = " -> ", *deliveredArrow = " => ", *backwardArrow = " backward => ";

std::string oneText(const Sharding &sharding) { return sharding.dims.empty() ? "." + sharding.str() : sharding.str(); }

std::string joinedTexts(const std::vector<Sharding> &shardings) {
  std::string out;
  for (size_t i = 0; i < shardings.size(); ++i)
    out += (i ? between : "") + oneText(shardings[i]);
  return out;
}

bool knownAxes(const Mesh &mesh, const Sharding &sharding) {
  const auto known = [&](const std::string &axis) {
    return std::ranges::find(mesh.axes, axis, &MeshAxis::name) != mesh.axes.end() && splitsTensors(axis);
  };
  for (const DimSharding &dim : sharding.dims)
    for (const Factor &factor : dim.factors)
      if (!std::ranges::all_of(factor.axes, known))
        return false;
  return std::ranges::all_of(sharding.partialAxes, known);
}

/// The shardings of a part of the text for tensors; none if it does not fit them.
std::optional<std::vector<Sharding>> shardingsOf(const std::string &text, const ShardingProblem &problem,
                                                 const std::vector<TensorId> &tensors) {
  std::vector<Sharding> found;
  size_t begin = 0;
  for (const TensorId tensor : tensors) {
    if (begin > text.size())
      return std::nullopt;
    const size_t end = std::min(text.find(';', begin), text.size());
    std::string part = text.substr(begin, end - begin);
    part.erase(0, part.find_first_not_of(' ') == std::string::npos ? part.size() : part.find_first_not_of(' '));
    part.erase(part.find_last_not_of(' ') + 1);
    if (part.starts_with('.')) // a scalar
      part.erase(0, 1);
    std::optional<Sharding> sharding = Sharding::parse(part);
    if (!sharding || !sharding->resolve(problem.tensors[tensor].shape) || !knownAxes(problem.mesh, *sharding))
      return std::nullopt;
    sharding->normalise(problem.mesh);
    std::erase_if(sharding->partialAxes, [&](const std::string &axis) { return problem.mesh.size(axis) == 1; });
    if (sharding->partialAxes.empty())
      sharding->partialKind = PartialKind::Sum;
    found.push_back(std::move(*sharding));
    begin = end + 1;
  }
  return begin > text.size() || tensors.empty() ? std::optional(std::move(found)) : std::nullopt;
}

/// Whether a result may be delivered so: it stays partial over fewer axes, and over no others.
bool mayDeliver(const Sharding &result, const Sharding &delivered) {
  const auto &axes = delivered.partialAxes;
  return (axes.empty() || delivered.partialKind == result.partialKind) &&
         std::includes(result.partialAxes.begin(), result.partialAxes.end(), axes.begin(), axes.end());
}

std::optional<OpDecision> parseDecision(const std::string &text, const ShardingProblem &problem, OpId id) {
  const ProblemOp &op = problem.ops[id];
  const std::string_view last = backwardArrow;
  const size_t backward = std::min(text.find(last), text.size()), middle = text.find("->"),
               end = std::min(text.find("=>"), backward);
  if (middle == std::string::npos || end < middle)
    return std::nullopt;
  const auto operands = shardingsOf(text.substr(0, middle), problem, op.operands);
  const auto results = shardingsOf(text.substr(middle + 2, end - middle - 2), problem, op.results);
  const auto delivered =
      end < backward ? shardingsOf(text.substr(end + 2, backward - end - 2), problem, op.results) : results;
  const auto read =
      backward < text.size() ? shardingsOf(text.substr(backward + last.size()), problem, op.results) : delivered;
  if (!operands || !results || !delivered || !read)
    return std::nullopt;
  for (size_t r = 0; r < results->size(); ++r)
    if (!mayDeliver((*results)[r], (*delivered)[r]))
      return std::nullopt;
  OpDecision decision{{*operands, *results}, *delivered, {}};
  for (size_t r = 0; r < results->size(); ++r) {
    decision.backward.emplace_back();
    if (backward < text.size() && (*read)[r] != (*delivered)[r])
      decision.backward.back() = (*read)[r];
    if (!(*read)[r].partialAxes.empty() && backward < text.size())
      return std::nullopt;
  }
  const std::vector<OpSharding> all = choicesOf(problem, id);
  return std::ranges::find(all, decision.sharding) != all.end() ? std::optional(std::move(decision)) : std::nullopt;
}

/// Whether a text that does not fit an op would if the op's images and weights were channels last, or not.
bool fitsOtherLayout(const std::string &text, const ShardingProblem &problem, OpId id) {
  static const std::string dim = R"((\([^)]*\)|[^\s,;|()]+))";
  static const std::regex four(dim + ", " + dim + ", " + dim + ", " + dim);
  for (const char *order : {"$1, $4, $2, $3", "$1, $3, $4, $2"})
    if (parseDecision(std::regex_replace(text, four, order), problem, id))
      return true;
  return false;
}

} // namespace

std::string decisionText(const OpDecision &decision) {
  std::string text = joinedTexts(decision.sharding.operands) + arrow + joinedTexts(decision.sharding.results);
  bool usual = true;
  for (size_t r = 0; r < decision.delivered.size(); ++r) {
    Sharding whole = decision.sharding.results[r];
    whole.partialAxes.clear();
    whole.partialKind = PartialKind::Sum;
    usual &= decision.delivered[r] == decision.sharding.results[r] || decision.delivered[r] == whole;
  }
  if (!usual)
    text += deliveredArrow + joinedTexts(decision.delivered);
  if (std::ranges::none_of(decision.backward, [](const auto &read) { return read.has_value(); }))
    return text;
  std::vector<Sharding> read;
  for (size_t r = 0; r < decision.delivered.size(); ++r) {
    read.push_back(decision.backward[r].value_or(decision.delivered[r]));
    if (!decision.backward[r]) // as it is delivered; a sum is whole
      read.back().partialAxes.clear();
  }
  return text + backwardArrow + joinedTexts(read);
}

DecidedOps decidedOps(const ShardingProblem &problem, const Decisions &strategy, bool strict) {
  if (strategy.ops.empty())
    return {};
  DecidedOps decided(problem.ops.size());
  std::map<std::string, std::map<std::string, std::pair<size_t, std::string>>> byPath; // rule and text by label
  std::set<std::pair<size_t, std::string>> followed;
  for (OpId id = 0; id < static_cast<OpId>(problem.ops.size()); ++id) {
    const ProblemOp &op = problem.ops[id];
    auto [entries, fresh] = byPath.try_emplace(op.path);
    for (size_t r = 0; fresh && r < strategy.ops.size(); ++r)
      if (matches(strategy.ops[r].pattern, op.path))
        for (const auto &[label, text] : strategy.ops[r].ops)
          entries->second[label] = {r, text};
    const auto found = entries->second.find(op.label);
    if (found == entries->second.end())
      continue;
    const auto &[rule, text] = found->second;
    followed.insert({rule, op.label});
    decided[id] = parseDecision(text, problem, id);
    if (!decided[id] && strict)
      throw userError(fmt::format(
          "ops: \"{}\": {} cannot run as \"{}\"{}", strategy.ops[rule].pattern, op.label, text,
          fitsOtherLayout(text, problem, id) ? ", which is written for images in another layout (see --layout)" : ""));
  }
  for (size_t r = 0; strict && r < strategy.ops.size(); ++r)
    for (const auto &[label, text] : strategy.ops[r].ops)
      if (!followed.contains({r, label}))
        throw userError(
            fmt::format("ops: \"{}\" has no op {} that no later rule decides", strategy.ops[r].pattern, label));
  return followed.empty() ? DecidedOps() : decided;
}

} // namespace cleave::partitioner
