// Every choice of an op computes the op: for each choice, every rank runs the op on its pieces in the reference
// interpreter and must get its piece, or its term, of the whole result.
#include "ir/GraphModule.h"
#include "ir/interpreter/Interpreter.h"
#include "ir/interpreter/Slices.h"
#include "partitioner/annotate/ReadProblem.h"
#include "partitioner/sharding/OpSharding.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <fmt/format.h>
#include <map>

using namespace cleave;
using namespace cleave::partitioner;
using ir::HostTensor;

namespace {

const Mesh mesh{{{"dp", 2}, {"tp", 2}, {"pp", 1}}};

/// A test case of one op. In `body`, $0 and $1 are the types of the operands %0 and %1, $r and $s those of the results.
/// If the op reads a constant, `body` defines the constant first, and the constant is the last operand.
struct Case {
  std::string body;
  std::vector<std::vector<int64_t>> operands;
  std::vector<std::vector<int64_t>> results;
  std::vector<std::string> elements = {}; ///< of the operands; default f32
  bool readsConstant = false;
};

std::string typeOf(const std::vector<int64_t> &shape, const std::string &element) {
  std::string text = "tensor<";
  for (int64_t size : shape)
    text += fmt::format("{}x", size);
  return text + element + ">";
}

/// The function with the op on tensors of these shapes.
std::string functionOf(const Case &c, const std::vector<std::vector<int64_t>> &operands,
                       const std::vector<std::vector<int64_t>> &results) {
  std::string arguments, body = c.body, returned, types;
  const auto put = [&](const std::string &what, const std::string &with) {
    for (size_t at = body.find(what); at != std::string::npos; at = body.find(what, at + with.size()))
      body.replace(at, what.size(), with);
  };
  for (size_t i = 0; i < operands.size(); ++i) {
    const std::string type = typeOf(operands[i], i < c.elements.size() ? c.elements[i] : "f32");
    put(fmt::format("${}", i), type);
    if (!c.readsConstant || i + 1 < operands.size())
      arguments += fmt::format("{}%{}: {}", i ? ", " : "", i, type);
  }
  for (size_t r = 0; r < results.size(); ++r) {
    const char *name = r ? "s" : "r";
    put(fmt::format("${}", name), typeOf(results[r], "f32"));
    returned += fmt::format("{}%{}", r ? ", " : "", name);
    types += (r ? ", " : "") + typeOf(results[r], "f32");
  }
  return fmt::format("func.func @f({}) -> ({}) {{\n{}\nreturn {} : {}\n}}", arguments, types, body, returned, types);
}

HostTensor filled(const std::vector<int64_t> &shape, const std::string &element, uint32_t seed) {
  HostTensor tensor(shape, element == "i32" ? DType::I32 : DType::F32);
  for (double &value : tensor.values) {
    seed = seed * 1664525u + 1013904223u;
    value = element == "i32" ? (seed >> 8) % 4 : static_cast<double>((seed >> 8) % 9) - 4;
  }
  return tensor;
}

/// The member's term of a tensor that is a partial sum: random terms that add up to the tensor.
HostTensor termOf(HostTensor whole, const Sharding &sharding, const std::vector<int64_t> &coords) {
  const int64_t members = mesh.size(sharding.partialAxes), at = mesh.linear(sharding.partialAxes, coords);
  for (int64_t m = 1; m < members; ++m) {
    const HostTensor term = filled(whole.shape, "f32", static_cast<uint32_t>(100 + m));
    if (at == m)
      return term;
    for (size_t i = 0; at == 0 && i < whole.values.size(); ++i)
      whole.values[i] -= term.values[i];
  }
  return whole;
}

std::vector<std::vector<int64_t>> localShapes(const std::vector<Sharding> &shardings,
                                              const std::vector<int64_t> &coords) {
  std::vector<std::vector<int64_t>> shapes;
  for (const Sharding &sharding : shardings)
    shapes.push_back(sharding.localShape(mesh, coords));
  return shapes;
}

std::vector<HostTensor> evaluate(const std::string &function, const std::vector<HostTensor> &inputs) {
  static std::map<std::string, GraphModule> modules;
  auto known = modules.find(function);
  if (known == modules.end())
    known = modules.emplace(function, GraphModule::parse(function, "case")).first;
  return ir::evaluate(known->second.function("f"), inputs);
}

/// Combines another member's term into `sum` by the reduction `kind`.
void combine(HostTensor &sum, const HostTensor &other, PartialKind kind) {
  REQUIRE(sum.shape == other.shape);
  for (size_t i = 0; i < sum.values.size(); ++i) {
    double &value = sum.values[i];
    value = kind == PartialKind::Sum   ? value + other.values[i]
            : kind == PartialKind::Max ? std::max(value, other.values[i])
                                       : std::min(value, other.values[i]);
  }
}

void checkChoice(const Case &c, const OpSharding &choice, const std::vector<HostTensor> &inputs,
                 const std::vector<HostTensor> &expected) {
  std::vector<std::vector<HostTensor>> found;
  for (int64_t rank = 0; rank < mesh.ranks(); ++rank) {
    const std::vector<int64_t> coords = mesh.coords(rank);
    std::vector<HostTensor> pieces;
    for (size_t i = 0; i < inputs.size(); ++i)
      pieces.push_back(ir::localPiece(termOf(inputs[i], choice.operands[i], coords), choice.operands[i], mesh, coords));
    found.push_back(
        evaluate(functionOf(c, localShapes(choice.operands, coords), localShapes(choice.results, coords)), pieces));
  }
  for (size_t r = 0; r < expected.size(); ++r)
    for (int64_t rank = 0; rank < mesh.ranks(); ++rank) {
      const Sharding &sharding = choice.results[r];
      const std::vector<int64_t> coords = mesh.coords(rank);
      std::optional<HostTensor> total;
      for (int64_t other = 0; other < mesh.ranks(); ++other) {
        const std::vector<int64_t> at = mesh.coords(other);
        bool member = true; // belongs to the group whose terms are combined
        for (size_t a = 0; a < mesh.axes.size(); ++a)
          member &= at[a] == coords[a] ||
                    std::count(sharding.partialAxes.begin(), sharding.partialAxes.end(), mesh.axes[a].name);
        if (member && total)
          combine(*total, found[other][r], sharding.partialKind);
        else if (member)
          total = found[other][r];
      }
      const HostTensor piece = ir::localPiece(expected[r], sharding, mesh, coords);
      INFO("result " << r << ", rank " << rank);
      REQUIRE(total->shape == piece.shape);
      for (size_t i = 0; i < piece.values.size(); ++i)
        REQUIRE(total->values[i] == Approx(piece.values[i]).margin(1e-4));
    }
}

/// Rows of a split table begin at an offset, which an op alone does not know.
bool needsOffset(const Case &c, const OpSharding &choice) {
  return c.body.find("embedding") != std::string::npos &&
         (c.body.find("grad") == std::string::npos ? choice.operands[0] : choice.results[0]).dims[0].split();
}

size_t checkAll(const Case &c) {
  const std::string function = functionOf(c, c.operands, c.results);
  INFO(function);
  GraphModule module = GraphModule::parse(function, "case");
  Decisions strategy;
  strategy.mesh = mesh;
  const ShardingProblem problem =
      readProblem(mlir::cast<mlir::func::FuncOp>(module.function("f")), strategy, NamedShardings());
  const OpId op = static_cast<OpId>(problem.ops.size()) - 2;
  std::vector<HostTensor> inputs;
  for (size_t i = 0; i < c.operands.size() - c.readsConstant; ++i)
    inputs.push_back(
        filled(c.operands[i], i < c.elements.size() ? c.elements[i] : "f32", static_cast<uint32_t>(i + 1)));
  const std::vector<HostTensor> expected = evaluate(function, inputs);
  const std::vector<OpSharding> choices = choicesOf(problem, op);
  for (const OpSharding &choice : choices) {
    std::string text;
    for (const std::vector<Sharding> *side : {&choice.operands, &choice.results})
      for (const Sharding &sharding : *side)
        text += "[" + sharding.str() + "] ";
    INFO(text);
    if (!needsOffset(c, choice))
      checkChoice(c, choice, inputs, expected);
  }
  return choices.size();
}

} // namespace

TEST_CASE("every choice of an op computes the op") {
  // This test finds illegal choices; the expected counts, worked out by hand, find missing ones. With two axes and n
  // loops, each axis splits one loop or none: (n + 1)^2 choices, less those for which there are too few elements.
  CHECK(checkAll({"%r = cleave.relu %0 : $0", {{4, 6}}, {{4, 6}}}) == 9);
  CHECK(checkAll({"%r = cleave.add %0, %1 : $0", {{5, 4}, {5, 4}}, {{5, 4}}}) == 16); // also partial sums
  CHECK(checkAll({"%r = cleave.mul %0, %1 : $0", {{5, 4}, {5, 4}}, {{5, 4}}}) == 9);
  CHECK(checkAll({"%1 = cleave.constant dense<2.0> : $1 : $1\n%r = cleave.mul %0, %1 : $0",
                  {{5, 4}, {5, 4}},
                  {{5, 4}},
                  {},
                  true}) == 16);
  CHECK(checkAll({"%1 = cleave.constant dense<2.0> : $1 : $1\n%r = cleave.div %0, %1 : $0",
                  {{5, 4}, {5, 4}},
                  {{5, 4}},
                  {},
                  true}) == 16);
  CHECK(checkAll({"%1 = cleave.constant dense<2.0> : $1 : $1\n%r = cleave.div %1, %0 : $0",
                  {{5, 4}, {5, 4}},
                  {{5, 4}},
                  {},
                  true}) == 9);
  CHECK(checkAll({"%r = cleave.reduce sum %0 dims [0] : $0 -> $r", {{4, 6}}, {{6}}}) == 16);
  CHECK(checkAll({"%r = cleave.reduce max %0 dims [1] : $0 -> $r", {{5, 7}}, {{5}}}) == 9);
  CHECK(checkAll({"%r = cleave.reduce min %0 dims [0, 1] : $0 -> $r", {{5, 7}}, {{}}}) == 9);
  CHECK(checkAll({"%r = cleave.broadcast %0 dims [1] : $0 -> $r", {{6}}, {{4, 6}}}) == 9);
  CHECK(checkAll({"%r = cleave.transpose %0 permutation [1, 0] : $0 -> $r", {{4, 6}}, {{6, 4}}}) == 16);
  CHECK(checkAll({"%r = cleave.concat %0, %1 {dim = 1 : i64} : ($0, $1) -> $r", {{4, 6}, {4, 12}}, {{4, 18}}}) == 9);
  CHECK(
      checkAll(
          {"%r = cleave.gather %0, %1 {dim = 1 : i64} : ($0, $1) -> $r", {{4, 6}, {4, 5}}, {{4, 5}}, {"f32", "i32"}}) ==
      9);
  CHECK(checkAll({"%r = cleave.scatter_add %0, %1 {dim = 1 : i64} : ($0, $1) -> $r",
                  {{4, 5}, {4, 5}},
                  {{4, 6}},
                  {"f32", "i32"}}) == 9);
  CHECK(checkAll({"%r = cleave.embedding %0, %1 : ($0, $1) -> $r", {{4, 6}, {5}}, {{5, 6}}, {"f32", "i32"}}) == 16);
  CHECK(checkAll({"%r = cleave.embedding_grad %0, %1 : ($0, $1) -> $r", {{5, 6}, {5}}, {{4, 6}}, {"f32", "i32"}}) ==
        16);
  CHECK(checkAll({"%r = cleave.matmul %0, %1 : ($0, $1) -> $r", {{4, 6}, {6, 5}}, {{4, 5}}}) == 16);
  CHECK(checkAll({"%r = cleave.matmul %0, %1 {transB} : ($0, $1) -> $r", {{2, 4, 6}, {5, 6}}, {{2, 4, 5}}}) == 24);
  CHECK(checkAll({"%r = cleave.matmul %0, %1 {transA} : ($0, $1) -> $r", {{2, 6, 4}, {2, 6, 5}}, {{2, 4, 5}}}) == 24);
  CHECK(checkAll({"%r = cleave.conv2d %0, %1 {stride = array<i64: 1, 1>, padding = array<i64: 0, 0, 0, 0>, dilation = "
                  "array<i64: 1, 1>, groups = 1 : i64} : ($0, $1) -> $r",
                  {{4, 6, 5, 5}, {7, 6, 3, 3}},
                  {{4, 7, 3, 3}}}) == 16);
  CHECK(checkAll({"%r, %s = cleave.attention %0, %1, %2 {scale = 0.5 : f64} : ($0, $1, $2) -> ($r, $s)",
                  {{4, 6, 3, 2}, {4, 6, 3, 2}, {4, 6, 3, 2}},
                  {{4, 6, 3, 2}, {4, 6, 3}}}) == 9);
}
