// Sharding problems written down by hand, and their solutions as text.
#pragma once
#include "partitioner/sharding/OpSharding.h"
#include "partitioner/sharding/Solution.h"

#include <catch2/catch.hpp>

#include <string>
#include <vector>

namespace cleave::partitioner::test {

using Shape = std::vector<int64_t>;
using Lines = std::vector<std::string>;

inline Mesh meshOf(int64_t dp, int64_t tp) { return {{{"dp", dp}, {"tp", tp}, {"pp", 1}}}; }

inline Sharding sharding(const std::string &text, const Shape &shape) {
  std::string why;
  auto parsed = Sharding::parse(text, &why);
  INFO(text << ": " << why);
  REQUIRE(parsed);
  REQUIRE(parsed->resolve(shape));
  return *parsed;
}

/// A problem that a test builds op by op.
struct Problem : ShardingProblem {
  explicit Problem(Mesh mesh) { this->mesh = std::move(mesh); }

  TensorId pinned(const Shape &shape, const std::string &text) {
    names.push_back({"pinned" + std::to_string(names.size()), {}});
    return addArgument({.shape = shape}, {static_cast<NameId>(names.size()) - 1, sharding(text, shape)});
  }
  TensorId open(const Shape &shape, const std::string &name) {
    names.push_back({name, {}});
    return addArgument({.shape = shape}, {static_cast<NameId>(names.size()) - 1, {}});
  }
  /// Adds an op with one result and returns this result.
  TensorId op(OpKind kind, OpRule rule, std::vector<TensorId> operands, const Shape &shape, int stage = 0,
              bool backward = false) {
    const OpId id = addOp({.kind = kind,
                           .rule = rules.add(std::move(rule)),
                           .operands = std::move(operands),
                           .stage = stage,
                           .backward = backward},
                          {{.shape = shape}});
    return ops[id].results[0];
  }
  TensorId constant(const Shape &shape, bool splat = true) {
    return ops[addOp({.kind = OpKind::Free}, {{.shape = shape, .splat = splat}})].results[0];
  }
  TensorId reshape(TensorId operand, const Shape &shape) {
    return ops[addOp({.kind = OpKind::Reshape, .operands = {operand}}, {{.shape = shape}})].results[0];
  }
  TensorId relu(TensorId operand) {
    const Shape shape = tensors[operand].shape;
    return op(OpKind::Elementwise, elementwiseRule(shape.size(), 1), {operand}, shape);
  }
  TensorId add(TensorId a, TensorId b) {
    const Shape shape = tensors[a].shape;
    return op(OpKind::Add, elementwiseRule(shape.size(), 2, 1, SumPassing::Linear), {a, b}, shape);
  }
  /// x [..., k] times a weight [n, k].
  TensorId linear(TensorId x, TensorId weight, int stage = 0) {
    Shape shape = tensors[x].shape;
    const size_t rank = shape.size();
    shape.back() = tensors[weight].shape[0];
    return op(OpKind::Other, matmulRule(rank, 2, false, true), {x, weight}, shape, stage);
  }
  /// Queries, keys or values of a fused product [b, t, 3, heads, width], as [b, heads, t, width].
  TensorId part(TensorId packed, int64_t index) {
    const Shape shape = tensors[packed].shape;
    Shape one = shape;
    one[2] = 1;
    const TensorId slice = op(OpKind::Slice, windowRule(shape, one, {0, 0, index, 0, 0}), {packed}, one);
    const TensorId rows = reshape(slice, {shape[0], shape[1], shape[3], shape[4]});
    return op(OpKind::Transpose, transposeRule({0, 2, 1, 3}), {rows}, {shape[0], shape[3], shape[1], shape[4]});
  }
  /// q times the transposed k, both [b, heads, t, width].
  TensorId scores(TensorId q, TensorId k) {
    Shape shape = tensors[q].shape;
    shape[3] = shape[2];
    return op(OpKind::Other, matmulRule(4, 4, false, true), {q, k}, shape);
  }
};

/// "a; b -> c"
inline std::string text(const OpSharding &choice) {
  std::string text;
  for (const Sharding &operand : choice.operands)
    text += (text.empty() ? "" : "; ") + operand.str();
  text += " ->";
  for (const Sharding &result : choice.results)
    text += (text.back() == '>' ? " " : "; ") + result.str();
  return text;
}

/// The ops of a solution in order: "3 = op0 1 2: dp, tp" for an op of the problem on tensors 1 and 2, "reshard" or
/// "copy of op0" for an added op.
inline Lines linesOf(const ShardingProblem &problem, const ShardingSolution &solution) {
  Lines lines;
  for (OpId op : solution.order) {
    const bool isAdded = solution.isAdded(op), isReshard = solution.isReshard(op);
    const std::vector<TensorId> results =
        isAdded ? std::vector<TensorId>{solution.resultOf(op)} : problem.ops[op].results;
    std::string line = results.empty() ? "" : std::to_string(results[0]) + " = ";
    line += isReshard          ? "reshard"
            : isAdded          ? "copy of op" + std::to_string(solution.addedOp(op).copied)
            : !results.empty() ? "op" + std::to_string(op)
                               : "return";
    for (TensorId operand : solution.operandsOf(op))
      line += " " + std::to_string(operand);
    if (!results.empty())
      line += ": " + solution.shardingOf(results[0]).str();
    lines.push_back(line);
  }
  return lines;
}

} // namespace cleave::partitioner::test
