// GPU kernels assemble for every chip without spills. (Other codegen tests verify their results by emulating the
// threads on a CPU.)
#include "passes/codegen/gpu/Ptx.h"
#include "passes/codegen/gpu/GpuEmit.h"
#include "runtime/base/Error.h"
#include "tests/unit/passes/codegen/Reference.h"

#include <catch2/catch.hpp>
#include <iostream>

using cleave::Target;
using namespace cleave::passes::kernel;

namespace {

KernelGraph geluOfBias(int64_t rows, int64_t columns) {
  GraphMaker m;
  int x = m.input({rows, columns}, DType::BF16), bias = m.input({columns});
  int sum = m.add(m.cast(x, DType::F32), m.broadcast(bias, {rows, columns}, {1}));
  m.graph.outputs = {m.cast(m.op(NodeKind::Gelu, {sum}), DType::BF16)};
  return m.graph;
}

KernelGraph softmax(int64_t rows, int64_t columns) {
  GraphMaker m;
  int x = m.input({rows, columns});
  int e = m.op(NodeKind::Exp, {m.sub(x, m.broadcast(m.reduce(ReduceKind::Max, x, {1}), {rows, columns}, {0}))});
  m.graph.outputs = {m.div(e, m.broadcast(m.reduce(ReduceKind::Sum, e, {1}), {rows, columns}, {0}))};
  return m.graph;
}

KernelGraph biasGradient(int64_t rows, int64_t columns) {
  GraphMaker m;
  m.graph.outputs = {m.reduce(ReduceKind::Sum, m.input({rows, columns}), {0})};
  return m.graph;
}

KernelGraph adam(int64_t n) {
  GraphMaker m;
  int p = m.input({n}), g = m.input({n}), mean = m.input({n}), square = m.input({n}), rate = m.input({});
  auto times = [&](int x, double by) { return m.mul(x, m.constant({n}, by)); };
  int m1 = m.add(times(mean, 0.9), times(g, 0.1)), v1 = m.add(times(square, 0.999), times(m.mul(g, g), 0.001));
  int step = m.div(m.mul(m.broadcast(rate, {n}, {}), m1), m.add(m.op(NodeKind::Sqrt, {v1}), m.constant({n}, 1e-8)));
  m.graph.outputs = {m.sub(p, step), m1, v1};
  return m.graph;
}

/// The sum of all elementwise ops of the table.
KernelGraph functions(int64_t n) {
  GraphMaker m;
  const int x = m.input({n}), y = m.input({n});
  int sum = x;
#define CLEAVE_UNARY(Name, ...) sum = m.add(sum, m.op(NodeKind::Name, {x}));
#define CLEAVE_BINARY(Name, ...) sum = m.add(sum, m.op(NodeKind::Name, {x, y}));
#include "ir/graph/GraphElementwise.inc"
  m.graph.outputs = {sum};
  return m.graph;
}

} // namespace

TEST_CASE("kernels assemble for every chip without spills", "[ptx]") {
  const std::vector<std::pair<std::string, KernelGraph>> graphs{{"gelu", geluOfBias(1024, 3072)},
                                                                {"softmax_short", softmax(512, 100)},
                                                                {"softmax_long", softmax(64, 32000)},
                                                                {"bias", biasGradient(8192, 768)},
                                                                {"adam", adam(100000)},
                                                                {"functions", functions(1000)}};
  std::vector<LoopNest> nests;
  for (const auto &[name, graph] : graphs)
    nests.push_back(*loopNestOf(graph, nullptr, 1));
  std::vector<NamedLoopNest> kernels;
  for (size_t i = 0; i < graphs.size(); ++i)
    kernels.push_back({graphs[i].first, &nests[i]});
  for (size_t i = 0; i < graphs.size(); ++i)
    kernels.push_back({graphs[i].first + "_batch", &nests[i], false, true});
  CHECK(launchOf(nests[1]).threadsPerRow == 32);
  CHECK(launchOf(nests[2]).threadsPerRow > 32);
  for (const Target chip : Target::all(Target::Kind::Cuda)) {
    const std::string ptx = ptxOf(kernels, chip);
    CHECK(ptx.find(".target " + chip.text()) != std::string::npos);
    CHECK(ptx.find("max.NaN.f32") != std::string::npos); // one instruction, on every chip
    if (findPtxas().empty()) {
      WARN("ptxas is not installed: kernels were not assembled");
      continue;
    }
    const Cubin cubin = assemble(ptx, chip);
    CHECK(cubin.bytes.size() > 1000);
    REQUIRE(cubin.kernels.size() == kernels.size());
    for (const KernelResources &kernel : cubin.kernels) {
      INFO(chip.text() << " " << kernel.symbol << ": " << kernel.registers << " registers, " << kernel.sharedBytes
                << " bytes shared");
      CHECK(kernel.spillBytes == 0);
      CHECK(kernel.registers > 0);
      CHECK(kernel.registers <= 128);
      CHECK((kernel.sharedBytes > 0) ==
            (kernel.symbol.starts_with("softmax_long") || kernel.symbol.starts_with("bias")));
    }
  }
}

TEST_CASE("broken PTX is refused", "[ptx]") {
  if (!findPtxas().empty())
    CHECK_THROWS_WITH(assemble("this is no PTX", Target::Sm90), Catch::Contains("ptxas refused"));
}
