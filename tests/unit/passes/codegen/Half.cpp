// Half types in kernels: every use of a value sees it rounded as in memory, so loading and recomputing it give the same
// result. Each graph runs with both vector widths and as GPU threads.
#include "tests/unit/passes/codegen/Reference.h"
#include "passes/codegen/Codegen.h"

#include <catch2/catch.hpp>
#include <cmath>

using cleave::Target;
using namespace cleave::passes;
using namespace cleave::passes::kernel;

namespace {

constexpr DType f32 = DType::F32, halves[] = {DType::F16, DType::BF16};

/// The outputs of a graph, one list per way to compile it.
std::vector<std::vector<TestTensor>> outputsOf(const KernelGraph &graph, const std::vector<TestTensor> &inputs) {
  std::vector<std::vector<TestTensor>> found;
  for (const Target target : {Target::Emulated, Target::X86_64_v3, Target::X86_64_v4}) {
    if (!target.gpu() && !target.runsHere())
      continue;
    std::string why;
    std::optional<LoopNest> nest = loopNestOf(graph, &why, lanesOf(target));
    INFO(why);
    REQUIRE(nest);
    LoadedKernel kernel(*nest, processorOf(target));
    auto bytes = execute(*nest, kernel, graph, inputs, 2);
    std::vector<TestTensor> outputs;
    for (size_t o = 0; o < bytes.size(); ++o) {
      const Node &node = graph.nodes[static_cast<size_t>(graph.outputs[o])];
      outputs.push_back(unpack(bytes[o], node.shape, node.type));
    }
    found.push_back(std::move(outputs));
  }
  return found;
}

/// Stores `values` of a half type, and also each value as the next node of the kernel reads it. Both must be equal.
void checkRegisters(GraphMaker &m, const std::vector<int> &values) {
  for (int value : values) {
    m.graph.outputs.push_back(value);
    m.graph.outputs.push_back(m.cast(value, f32));
  }
  for (const auto &outputs : outputsOf(m.graph, randomInputs(m.graph, 3)))
    for (size_t i = 0; i < outputs.size(); i += 2)
      CHECK(outputs[i].data == outputs[i + 1].data);
}

} // namespace

TEST_CASE("a value of a half type is the same in registers as in memory", "[codegen]") {
  for (DType type : halves) {
    GraphMaker m;
    const std::vector<int64_t> shape{5, 37};
    int x = m.input(shape, type), y = m.input(shape, type), z = m.input(shape), n = m.input(shape, DType::I32);
    int positive = m.op(NodeKind::Abs, {x});
    std::vector<int> values{m.add(x, y), m.sub(x, y), m.mul(x, y), m.div(x, y), m.cast(z, type), m.cast(n, type)};
    for (NodeKind kind : {NodeKind::Exp, NodeKind::Tanh, NodeKind::Sigmoid, NodeKind::Silu, NodeKind::Gelu,
                          NodeKind::Erf, NodeKind::Neg, NodeKind::Relu})
      values.push_back(m.op(kind, {x}));
    for (NodeKind kind : {NodeKind::Log, NodeKind::Sqrt, NodeKind::Rsqrt})
      values.push_back(m.op(kind, {positive}));
    values.push_back(m.op(NodeKind::GeluGrad, {y, x}));
    values.push_back(m.op(NodeKind::Select, {m.compare(Predicate::Gt, x, y), m.mul(x, x), m.op(NodeKind::Max, {x, y})}));
    checkRegisters(m, values);
  }
}

TEST_CASE("sums in a half type are rounded once, at their end", "[codegen]") {
  for (DType type : halves)
    for (int64_t kept : {0, 1}) {
      GraphMaker m;
      int x = m.input({65, 130}, type);
      checkRegisters(m, {m.reduce(ReduceKind::Sum, m.mul(x, x), {1 - kept}), m.reduce(ReduceKind::Max, x, {1 - kept})});
      // the product is rounded, the running sum is not
      for (const auto &outputs : outputsOf(m.graph, randomInputs(m.graph, 3)))
        CHECK(outputs[0].data == evaluate(m.graph, randomInputs(m.graph, 3))[0].data);
    }
}

TEST_CASE("a chain of half values rounds every link", "[codegen]") {
  for (DType type : halves) {
    GraphMaker m;
    const std::vector<int64_t> shape{3, 50};
    int x = m.input(shape, type), y = m.input({50}, type), wide = m.broadcast(y, shape, {1}), v = x;
    for (int link = 0; link < 6; ++link)
      v = link % 2 ? m.mul(v, wide) : m.add(v, x);
    m.graph.outputs = {v};
    const auto inputs = randomInputs(m.graph, 5);
    for (const auto &outputs : outputsOf(m.graph, inputs))
      CHECK(outputs[0].data == evaluate(m.graph, inputs)[0].data);
  }
}

TEST_CASE("log-sum-exp is that of the logits that are stored", "[codegen]") {
  for (DType type : halves)
    for (int64_t classes : {10, 37, 1000}) {
      GraphMaker m;
      const std::vector<int64_t> shape{6, classes};
      int product = m.input(shape, type), bias = m.input({classes}, type);
      int scaled = m.mul(product, m.constant(shape, 11, type));
      int logits = m.add(scaled, m.broadcast(bias, shape, {1})), x = m.cast(logits, f32);
      int max = m.reduce(ReduceKind::Max, x, {1});
      int sum = m.reduce(ReduceKind::Sum, m.op(NodeKind::Exp, {m.sub(x, m.broadcast(max, shape, {0}))}), {1});
      m.graph.outputs = {logits, m.add(max, m.op(NodeKind::Log, {sum}))};
      for (const auto &outputs : outputsOf(m.graph, randomInputs(m.graph, 8)))
        for (int64_t row = 0; row < shape[0]; ++row) {
          double probabilities = 0;
          for (int64_t i = 0; i < classes; ++i)
            probabilities += std::exp(outputs[0].data[static_cast<size_t>(row * classes + i)] -
                                      outputs[1].data[static_cast<size_t>(row)]);
          CHECK(probabilities == Approx(1).epsilon(2e-5));
        }
    }
}

TEST_CASE("what a later sweep takes from scratch memory is rounded, too", "[codegen]") {
  for (DType type : halves) {
    GraphMaker m;
    const std::vector<int64_t> shape{3, 200};
    int x = m.input(shape, type), e = m.op(NodeKind::Exp, {x});
    int sum = m.reduce(ReduceKind::Sum, m.cast(e, f32), {1});
    m.graph.outputs = {m.mul(m.cast(e, f32), m.broadcast(sum, shape, {0})), e, sum};
    for (const auto &outputs : outputsOf(m.graph, randomInputs(m.graph, 9)))
      for (size_t i = 0; i < outputs[0].data.size(); ++i) {
        const auto product = static_cast<float>(outputs[1].data[i] * outputs[2].data[i / 200]);
        REQUIRE(outputs[0].data[i] == static_cast<double>(product));
      }
  }
}
