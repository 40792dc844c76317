// Kernels in batch form: each call gives the same bits as a separate launch, on its own blocks.
#include "passes/codegen/Codegen.h"
#include "passes/codegen/gpu/GpuEmit.h"
#include "tests/unit/passes/codegen/Reference.h"

#include <catch2/catch.hpp>

#include <numeric>

using cleave::Target;
using namespace cleave::passes::kernel;

namespace {

struct Made {
  KernelGraph graph;
  LoopNest nest;
};

Made made(KernelGraph graph) {
  std::string why;
  std::optional<LoopNest> nest = loopNestOf(graph, &why, 1);
  INFO(why);
  REQUIRE(nest);
  return {std::move(graph), std::move(*nest)};
}

/// An optimizer's update: its results may alias three operands; all elements share a rate; `offset` adds a scalar
/// input.
KernelGraph update(std::vector<int64_t> shape, bool offset) {
  GraphMaker m;
  int rate = m.input({}), g = m.input(shape, DType::BF16), mean = m.input(shape), p = m.input(shape);
  int m1 = m.add(m.mul(mean, m.constant(shape, 0.9)), m.cast(g, DType::F32));
  int step = m.mul(m.broadcast(rate, shape, {}), m1);
  if (offset)
    step = m.add(step, m.broadcast(m.cast(m.scalarInput(), DType::F32), shape, {}));
  m.graph.outputs = {m1, m.sub(p, step)};
  return m.graph;
}

KernelGraph squares(int64_t rows, int64_t columns) {
  GraphMaker m;
  int x = m.input({rows, columns});
  m.graph.outputs = {m.reduce(ReduceKind::Sum, m.mul(x, x), {1})};
  return m.graph;
}

KernelGraph columnSums(int64_t rows, int64_t columns) {
  GraphMaker m;
  m.graph.outputs = {m.reduce(ReduceKind::Sum, m.input({rows, columns}), {0})};
  return m.graph;
}

/// Compares one launch of all calls with a launch per call; both in place, where the loop nest allows it, and not.
void check(const std::vector<Made> &all, const std::vector<int> &blocks) {
  LoadedKernel batch(all[0].nest, Target::X86_64_v3, true), single(all[0].nest, Target::X86_64_v3);
  for (bool inPlace : {false, true}) {
    std::vector<BatchCall> calls;
    for (size_t i = 0; i < all.size(); ++i) {
      REQUIRE(all[i].nest.str() == all[0].nest.str());
      std::vector<std::pair<int, int>> alias;
      for (auto pair : all[i].nest.mayAlias())
        if (inPlace && alias.empty())
          alias.push_back(pair);
      calls.push_back({&all[i].nest, &all[i].graph, randomInputs(all[i].graph, static_cast<unsigned>(10 + i)),
                       blocks[i], alias});
    }
    const auto found = executeBatch(batch, calls);
    for (size_t i = 0; i < all.size(); ++i) {
      INFO("call " << i << (inPlace ? " in place" : ""));
      CHECK(found[i] == execute(all[i].nest, single, all[i].graph, calls[i].inputs, blocks[i], calls[i].alias));
    }
  }
}

} // namespace

TEST_CASE("batch: updates of tensors of any shape are one loop nest", "[batch]") {
  for (bool offset : {false, true}) {
    std::vector<Made> all;
    std::vector<int> blocks;
    for (const std::vector<int64_t> &shape :
         std::vector<std::vector<int64_t>>{{3000}, {2}, {64, 33}, {2, 3, 5, 7}, {4}, {1021}, {8, 512}}) {
      all.push_back(made(update(shape, offset)));
      blocks.push_back(static_cast<int>(launchOf(all.back().nest).blocks()));
    }
    CHECK(all[0].nest.flat);
    CHECK(all[0].nest.mayAlias().size() >= 2);
    CHECK(std::accumulate(blocks.begin(), blocks.end(), 0) > static_cast<int>(all.size()));
    check(all, blocks);
    check(all, {1, 1, 5, 1, 2, 1, 3}); // fewer and more blocks than the calls need
  }
}

TEST_CASE("batch: reductions of rows and of columns", "[batch]") {
  for (int64_t columns : {40, 5000}) { // one warp per row; one block per row
    std::vector<Made> all;
    for (int i = 0; i < 3; ++i)
      all.push_back(made(squares(9, columns)));
    CHECK(all[0].nest.shape == Shape::Rows);
    check(all, {1, 3, 9});
  }
  std::vector<Made> all;
  for (int i = 0; i < 4; ++i)
    all.push_back(made(columnSums(300, 70)));
  CHECK(all[0].nest.shape == Shape::Columns);
  CHECK(launchOf(all[0].nest).together);
  check(all, {1, 2, 1, 4});
}

TEST_CASE("batch: one call", "[batch]") { check({made(update({77}, true))}, {1}); }
