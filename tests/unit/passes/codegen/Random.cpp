// Random kernel graphs: every graph that the planner accepts must give the reference's results, in one range and in
// several.
#include "passes/codegen/Codegen.h"
#include "tests/support/Worst.h"
#include "tests/unit/passes/codegen/Reference.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <random>

using cleave::Target;
using namespace cleave::passes;
using namespace cleave::passes::kernel;

namespace {

/// A random graph over three-dimensional inputs, and over reductions and transposes of them. Ops have bounded results
/// so that errors stay small.
class RandomGraph {
public:
  explicit RandomGraph(unsigned seed) : random(seed) {
    static const int64_t sizes[] = {1, 2, 3, 5, 8, 16, 17, 24, 33, 64};
    for (int64_t &d : root)
      d = sizes[pick(10)];
    nodes = {m.input(root), m.input(root), m.input({root[2]}), m.input({root[1]}), m.input({root[0], root[1]}),
             m.input({})};
    for (unsigned i = 0, count = 4 + pick(9); i < count; ++i)
      grow();
    for (int node : nodes)
      if (m.graph.nodes[static_cast<size_t>(node)].kind != NodeKind::Input && !used(node))
        m.graph.outputs.push_back(node);
    if (pick(2) && nodes.size() > 8) // also output a node that other nodes use
      if (int node = nodes[6 + pick(static_cast<unsigned>(nodes.size()) - 6)]; used(node))
        m.graph.outputs.push_back(node);
  }
  GraphMaker m;

private:
  unsigned pick(unsigned n) { return std::uniform_int_distribution<unsigned>(0, n - 1)(random); }
  bool used(int node) const {
    return std::any_of(m.graph.nodes.begin(), m.graph.nodes.end(), [&](const Node &n) {
      return std::find(n.operands.begin(), n.operands.end(), node) != n.operands.end();
    });
  }
  int any() { return nodes[pick(static_cast<unsigned>(nodes.size()))]; }
  /// A node of that shape: an existing one or a constant.
  int same(const std::vector<int64_t> &shape) {
    std::vector<int> fitting;
    for (int n : nodes)
      if (m.shape(n) == shape)
        fitting.push_back(n);
    return fitting.empty() || pick(6) == 0 ? m.constant(shape, 0.75)
                                           : fitting[pick(static_cast<unsigned>(fitting.size()))];
  }
  void grow() {
    int x = any();
    std::vector<int64_t> shape = m.shape(x);
    unsigned kind = pick(12);
    static const NodeKind unary[] = {NodeKind::Tanh,    NodeKind::Relu, NodeKind::Neg,
                                     NodeKind::Sigmoid, NodeKind::Gelu, NodeKind::Abs};
    static const NodeKind binary[] = {NodeKind::Add, NodeKind::Sub, NodeKind::Mul, NodeKind::Max};
    if (kind < 2) {
      nodes.push_back(m.op(unary[pick(6)], {x}));
    } else if (kind < 6) {
      nodes.push_back(m.op(NodeKind::Tanh, {m.op(binary[pick(4)], {x, same(shape)})}));
    } else if (kind < 8) { // broadcast to the root's shape where the dimensions fit
      std::vector<int64_t> dims;
      for (size_t i = 0, r = 0; i < shape.size(); ++i) {
        while (r < 3 && root[r] != shape[i])
          ++r;
        if (r == 3)
          return;
        dims.push_back(static_cast<int64_t>(r++));
      }
      nodes.push_back(m.broadcast(x, {root[0], root[1], root[2]}, dims));
    } else if (kind < 10 && !shape.empty()) {
      std::vector<int64_t> dims;
      int64_t count = 1;
      for (size_t i = 0; i < shape.size(); ++i)
        if (pick(2)) {
          dims.push_back(static_cast<int64_t>(i));
          count *= shape[i];
        }
      static const ReduceKind combines[] = {ReduceKind::Sum, ReduceKind::Sum, ReduceKind::Max, ReduceKind::Min};
      int r = m.reduce(combines[pick(4)], x, dims);
      nodes.push_back(m.mul(r, m.constant(m.shape(r), 1.0 / static_cast<double>(count))));
    } else if (kind == 10 && shape.size() > 1) {
      std::vector<int64_t> permutation(shape.size());
      for (size_t i = 0; i < shape.size(); ++i)
        permutation[i] = static_cast<int64_t>(i);
      std::shuffle(permutation.begin(), permutation.end(), random);
      nodes.push_back(m.transpose(x, permutation));
    } else if (shape.size() > 1) {
      size_t d = pick(static_cast<unsigned>(shape.size()));
      std::vector<int64_t> starts(shape.size(), 0), sizes = shape, none(shape.size(), 0);
      if (pick(2) && shape[d] > 1) { // sliced, then padded back
        starts[d] = 1;
        --sizes[d];
        nodes.push_back(m.pad(m.slice(x, starts, sizes), starts, none));
      } else {
        nodes.push_back(m.reshape(m.reshape(x, {elementCount(shape)}), shape));
      }
    }
  }

  std::mt19937 random;
  std::vector<int64_t> root{1, 1, 1};
  std::vector<int> nodes;
};

} // namespace

TEST_CASE("random graphs") {
  int accepted = 0;
  for (unsigned seed = 1; seed <= 150; ++seed) {
    RandomGraph random(seed);
    const KernelGraph &graph = random.m.graph;
    if (graph.outputs.empty())
      continue;
    // Each output alone, and all together.
    std::vector<std::vector<int>> choices{graph.outputs};
    for (int o : graph.outputs)
      choices.push_back({o});
    auto inputs = randomInputs(graph, seed);
    for (const auto &outputs : choices)
      for (int width : {1, lanesOf(hostTarget())}) { // GPU threads; vectors of this processor
        KernelGraph one = graph;
        one.outputs = outputs;
        auto nest = loopNestOf(one, nullptr, width);
        if (!nest)
          continue;
        ++accepted;
        auto wanted = evaluate(one, inputs);
        LoadedKernel kernel(*nest, hostTarget());
        auto whole = execute(*nest, kernel, one, inputs, 1);
        INFO("seed " << seed << "\n" << nest->str());
        for (size_t o = 0; o < wanted.size(); ++o) {
          TestTensor found = unpack(whole[o], wanted[o].shape, wanted[o].type);
          double worst = 0;
          for (size_t i = 0; i < found.data.size(); ++i)
            worst = cleave::test::worseOf(worst, std::fabs(found.data[i] - wanted[o].data[i]) /
                                                     (1 + std::fabs(wanted[o].data[i])));
          REQUIRE(worst < 1e-4);
        }
        REQUIRE(execute(*nest, kernel, one, inputs, 4) == whole);
        for (auto pair : nest->mayAlias())
          REQUIRE(execute(*nest, kernel, one, inputs, 2, {pair}) == whole);
      }
  }
  CHECK(accepted > 150);
}
