// Every kind of kernel, compiled, executed and compared with the reference: odd sizes, divided ranges, aliasing, both
// targets.
#include "passes/codegen/Codegen.h"
#include "tests/support/Worst.h"
#include "tests/unit/passes/codegen/Reference.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>

using cleave::Target;
using namespace cleave::passes;
using namespace cleave::passes::kernel;

namespace {

void compareTensors(const TestTensor &found, const TestTensor &wanted, double tolerance) {
  double scale = 0;
  for (double x : wanted.data)
    if (std::isfinite(x))
      scale = std::max(scale, std::fabs(x));
  for (size_t i = 0; i < wanted.data.size(); ++i) {
    double f = found.data[i], w = wanted.data[i];
    bool good = std::isnan(w)   ? std::isnan(f)
                : std::isinf(w) ? f == w
                                : std::fabs(f - w) <= tolerance * (std::fabs(w) + 0.1 * scale + 1e-3);
    if (!good) {
      INFO("element " << i << " is " << f << ", wanted " << w);
      REQUIRE(good);
    }
  }
}

/// Plans and compiles the kernel, runs it whole, in pieces and with every allowed aliasing (equal bits), and compares
/// with the reference.
LoopNest check(const KernelGraph &graph, double tolerance = 2e-6, const std::vector<double> &special = {}) {
  auto inputs = randomInputs(graph, 7);
  for (TestTensor &input : inputs) // the special values at different places of each input
    for (size_t i = 0; i < special.size() * 8; ++i)
      input.data[(i * 13 + static_cast<size_t>(&input - inputs.data()) * 29) % input.data.size()] =
          special[i % special.size()];
  auto wanted = evaluate(graph, inputs);
  std::optional<LoopNest> nest;
  for (const Target target : {Target::Emulated, Target::X86_64_v3, Target::X86_64_v4}) {
    if (!target.gpu() && !target.runsHere())
      continue;
    std::string why;
    nest = loopNestOf(graph, &why, lanesOf(target));
    INFO(why);
    REQUIRE(nest);
    INFO(nest->str());
    LoadedKernel kernel(*nest, processorOf(target));
    auto whole = execute(*nest, kernel, graph, inputs, 1);
    for (size_t o = 0; o < whole.size(); ++o)
      compareTensors(unpack(whole[o], wanted[o].shape, wanted[o].type), wanted[o], tolerance);
    REQUIRE(execute(*nest, kernel, graph, inputs, 3) == whole);
    for (auto pair : nest->mayAlias())
      REQUIRE(execute(*nest, kernel, graph, inputs, 2, {pair}) == whole);
  }
  return *nest;
}

int rowBroadcast(GraphMaker &m, int rows, std::vector<int64_t> shape) {
  std::vector<int64_t> dims;
  for (size_t i = 0; i < m.shape(rows).size(); ++i)
    dims.push_back(static_cast<int64_t>(i));
  return m.broadcast(rows, shape, dims);
}

int softmax(GraphMaker &m, int x) {
  auto shape = m.shape(x);
  int64_t last = static_cast<int64_t>(shape.size()) - 1;
  int e = m.op(NodeKind::Exp, {m.sub(x, rowBroadcast(m, m.reduce(ReduceKind::Max, x, {last}), shape))});
  return m.div(e, rowBroadcast(m, m.reduce(ReduceKind::Sum, e, {last}), shape));
}

} // namespace

TEST_CASE("maps of one loop share code over sizes") {
  std::string text;
  for (int64_t n : {1, 3, 17, 1000, 4096, 20000}) {
    GraphMaker m;
    int x = m.input({n}), y = m.input({n});
    m.graph.outputs = {m.add(m.mul(x, y), m.constant({n}, 2)), m.op(NodeKind::Relu, {x})};
    LoopNest p = check(m.graph);
    if (n == 17)
      text = p.str();
    if (n > 17)
      REQUIRE(p.str() == text);
  }
}

TEST_CASE("kernels that begin to read at other places are equal") {
  std::string key;
  for (const int64_t step : {1, 2, 5}) {
    GraphMaker m;
    const int x = m.reshape(m.slice(m.input({3, 6, 20}), {0, step, 0}, {3, 1, 20}), {3, 20}), y = m.input({3, 20});
    m.graph.outputs = {m.add(x, y), m.reduce(ReduceKind::Sum, x, {0})};
    const LoopNest p = check(m.graph);
    CHECK(p.offsets == std::vector<int64_t>{20 * step, 0});
    key = step == 1 ? p.key() : key;
    CHECK(p.key() == key);
  }
  GraphMaker m; // two steps of one tensor: the second stays apart from the first
  const int x = m.input({4, 30});
  m.graph.outputs = {m.add(m.slice(x, {1, 5}, {1, 20}), m.slice(x, {2, 7}, {1, 20}))};
  CHECK(check(m.graph).offsets == std::vector<int64_t>{35});
  GraphMaker padded; // where the slice is zero, nothing is read
  padded.graph.outputs = {padded.pad(padded.slice(padded.input({4, 30}), {1, 5}, {2, 20}), {1, 1}, {0, 2})};
  check(padded.graph);
}

TEST_CASE("an expensive value that a second sweep needs depends on one of two reduced loops") {
  GraphMaker m;
  int x = m.input({2, 2});
  // stored in scratch memory; depends on the first reduced loop only
  int t = m.reshape(m.op(NodeKind::Tanh, {x}), {2, 1, 2});
  int stacked = m.concat({t, t, t}, 1);
  int apart = m.sub(stacked, m.broadcast(m.reduce(ReduceKind::Max, stacked, {0, 1}), {2, 3, 2}, {2}));
  m.graph.outputs = {m.reduce(ReduceKind::Sum, m.op(NodeKind::Exp, {apart}), {0, 1})};
  CHECK(check(m.graph).str().find("scratch 0 from sweep 0") != std::string::npos);
}

TEST_CASE("values that are the same in every row are computed once") {
  for (int64_t n : {5, 16, 64, 100}) {
    GraphMaker m;
    const std::vector<int64_t> shape{40, n};
    const int x = m.input(shape), variance = m.input({n}), weight = m.input({n}, DType::BF16);
    const int factor = m.mul(m.op(NodeKind::Rsqrt, {m.add(m.op(NodeKind::Abs, {variance}), m.constant({n}, 1e-5))}),
                             m.cast(weight, DType::F32));
    m.graph.outputs = {m.mul(x, m.broadcast(factor, shape, {1})), m.broadcast(factor, shape, {1})};
    const LoopNest p = check(m.graph, 1e-5);
    CHECK(p.shape == Shape::Map);
    CHECK(p.scratchSlots == 1);
    CHECK(p.str().find("scratch 0 from sweep -1") != std::string::npos);
  }
  GraphMaker few; // as long as the rows themselves
  const int x = few.input({2, 64}), variance = few.input({64});
  few.graph.outputs = {few.mul(x, few.broadcast(few.op(NodeKind::Rsqrt, {variance}), {2, 64}, {1}))};
  CHECK(loopNestOf(few.graph)->scratchSlots == 0);
}

TEST_CASE("rows are cut where the parts of a concatenation meet") {
  // multiples of a vector, others, and more parts than are cut
  for (const std::vector<int64_t> &sizes : {std::vector<int64_t>{32, 32}, {64, 16, 48, 16}, {20, 44}, {16, 20, 28},
                                            std::vector<int64_t>(12, 16), {16, 7}}) {
    GraphMaker m;
    std::vector<int> parts;
    int64_t width = 0;
    for (const int64_t size : sizes) {
      const int x = m.input({3, 2 * size});
      parts.push_back(m.op(NodeKind::Exp, {m.slice(x, {0, size / 2}, {3, size})}));
      width += size;
    }
    const int all = m.concat(parts, 1);
    m.graph.outputs = {m.add(all, m.op(NodeKind::Neg, {m.input({3, width})})), all};
    check(m.graph, 1e-5);
  }
}

TEST_CASE("scalars") {
  GraphMaker m;
  int step = m.input({}), lr = m.input({});
  int power = m.op(NodeKind::Pow, {m.constant({}, 0.9), step});
  m.graph.outputs = {m.div(lr, m.sub(m.constant({}, 1), power)), m.add(step, m.constant({}, 1))};
  check(m.graph, 1e-5);
}

TEST_CASE("every elementwise op") {
  for (NodeKind k : {NodeKind::Neg, NodeKind::Abs, NodeKind::Exp, NodeKind::Tanh, NodeKind::Erf, NodeKind::Sin,
                     NodeKind::Cos, NodeKind::Sigmoid, NodeKind::Relu, NodeKind::Silu, NodeKind::Gelu}) {
    INFO(nodeName(k));
    GraphMaker m;
    int x = m.input({3, 171});
    m.graph.outputs = {m.op(k, {x})};
    check(m.graph);
  }
  GraphMaker m;
  int x = m.input({171}), y = m.input({171});
  int positive = m.add(m.op(NodeKind::Abs, {x}), m.constant({171}, 0.01));
  int less = m.compare(Predicate::Lt, x, y);
  m.graph.outputs = {m.op(NodeKind::Log, {positive}),
                     m.op(NodeKind::Sqrt, {positive}),
                     m.op(NodeKind::Rsqrt, {positive}),
                     m.op(NodeKind::Max, {x, y}),
                     m.op(NodeKind::Min, {x, y}),
                     m.op(NodeKind::Pow, {positive, y}),
                     less,
                     m.op(NodeKind::Select, {less, x, y}),
                     m.div(x, positive)};
  check(m.graph, 1e-5);
  GraphMaker g;
  int gx = g.input({77}), grad = g.input({77});
  int t = g.op(NodeKind::GeluGrad, {grad, gx}), e = g.op(NodeKind::GeluGrad, {grad, gx});
  g.graph.nodes[static_cast<size_t>(t)].tanh = true;
  int f = g.op(NodeKind::Gelu, {gx});
  g.graph.nodes[static_cast<size_t>(f)].tanh = true;
  g.graph.outputs = {t, e, f};
  check(g.graph, 1e-5);
}

TEST_CASE("special values of elementwise ops") {
  const std::vector<double> special{NAN, INFINITY, -INFINITY, 0, -0.0, 1e12, -1e12, 1, -1}; // cubes are in f32's range
  for (NodeKind k : {NodeKind::Neg, NodeKind::Abs, NodeKind::Exp, NodeKind::Log, NodeKind::Sqrt, NodeKind::Rsqrt,
                     NodeKind::Tanh, NodeKind::Erf, NodeKind::Sigmoid, NodeKind::Relu, NodeKind::Silu, NodeKind::Floor,
                     NodeKind::Ceil, NodeKind::Round, NodeKind::Log1p, NodeKind::Expm1, NodeKind::Sinh}) {
    INFO(nodeName(k));
    GraphMaker m;
    m.graph.outputs = {m.op(k, {m.input({3, 171})})};
    check(m.graph, 1e-5, special);
  }
  GraphMaker m;
  int x = m.input({171}), y = m.input({171});
  for (NodeKind k : {NodeKind::Max, NodeKind::Min, NodeKind::Add, NodeKind::Sub, NodeKind::Mul, NodeKind::Atan2,
                     NodeKind::Remainder})
    m.graph.outputs.push_back(m.op(k, {x, y}));
  for (Predicate p : {Predicate::Eq, Predicate::Ne, Predicate::Lt, Predicate::Le, Predicate::Gt, Predicate::Ge})
    m.graph.outputs.push_back(m.compare(p, x, y));
  for (double exponent : {0.5, -0.5, 2.0, 3.0, 0.0, -1.0})
    m.graph.outputs.push_back(m.op(NodeKind::Pow, {x, m.constant({171}, exponent)}));
  // a kernel keeps 0 and -0 apart
  int positive = m.constant({171}, 0), negative = m.constant({171}, -0.0), less = m.compare(Predicate::Lt, x, y);
  m.graph.outputs.push_back(m.div(m.constant({171}, 1), m.op(NodeKind::Select, {less, positive, negative})));
  m.graph.outputs.push_back(m.compare(Predicate::Lt, m.op(NodeKind::Rsqrt, {x}), positive));
  check(m.graph, 1e-5, special);
}

TEST_CASE("the largest and the smallest element are NaN if one is NaN") {
  for (const std::vector<double> &special :
       {std::vector<double>{NAN}, {INFINITY, NAN}, {-INFINITY}, {INFINITY}, {-0.0, 0}})
    for (auto shape : std::vector<std::vector<int64_t>>{{40, 7}, {40, 64}, {60, 300}, {3, 4096}}) {
      GraphMaker m;
      int x = m.input(shape);
      for (int64_t dim : {1, 0}) {
        GraphMaker one = m;
        one.graph.outputs = {one.reduce(ReduceKind::Max, x, {dim}), one.reduce(ReduceKind::Min, x, {dim})};
        check(one.graph, 1e-6, special);
      }
    }
}

TEST_CASE("element types") {
  for (DType type : {DType::F16, DType::BF16}) {
    GraphMaker m;
    int x = m.input({5, 37}, type), y = m.input({5, 37}, type);
    m.graph.outputs = {m.add(x, y), m.cast(x, DType::F32)};
    check(m.graph, type == DType::F16 ? 1e-3 : 8e-3);
  }
  for (DType type : {DType::I32, DType::I64}) {
    GraphMaker m;
    int x = m.input({37}, type), y = m.input({37}, type);
    int safe = m.add(y, m.constant({37}, 1, type));
    m.graph.outputs = {m.add(x, y),
                       m.div(x, safe),
                       m.cast(x, DType::F32),
                       m.op(NodeKind::Max, {x, y}),
                       m.compare(Predicate::Eq, x, y),
                       m.cast(m.compare(Predicate::Gt, x, y), DType::F32)};
    check(m.graph);
  }
  GraphMaker m;
  int x = m.input({37}), b = m.input({37}, DType::I1);
  m.graph.outputs = {m.op(NodeKind::Select, {b, x, m.constant({37}, -1e30)}), m.cast(x, DType::I32),
                     m.cast(x, DType::I64)};
  check(m.graph);
}

TEST_CASE("broadcasts into images and rows") {
  for (auto shape : std::vector<std::vector<int64_t>>{{2, 3, 5, 7}, {4, 17, 1, 1}, {3, 16, 8, 8}, {1, 1, 1, 3}}) {
    GraphMaker m;
    int x = m.input(shape), c = m.input({shape[1]}), w = m.input({shape[3]});
    m.graph.outputs = {m.op(NodeKind::Relu, {m.add(m.mul(x, m.broadcast(c, shape, {1})), m.broadcast(w, shape, {3}))})};
    check(m.graph);
  }
}

TEST_CASE("rows: softmax is one kernel of three sweeps") {
  for (int64_t n : {1, 3, 17, 64, 1000}) {
    GraphMaker m;
    int x = m.input({3, n});
    m.graph.outputs = {softmax(m, x)};
    check(m.graph, 1e-5);
  }
  GraphMaker m;
  m.graph.outputs = {softmax(m, m.input({3, 1000}))};
  LoopNest p = *loopNestOf(m.graph);
  REQUIRE(p.shape == Shape::Rows);
  REQUIRE(p.sweeps == 3);
  REQUIRE(p.scratchSlots == 1); // scratch holds the exponentials
}

TEST_CASE("rows: causal mask from iota") {
  GraphMaker m;
  std::vector<int64_t> shape{2, 3, 9, 21};
  int x = m.input(shape), offset = m.scalarInput();
  int mask = m.compare(Predicate::Le, m.iota(shape, 3), m.iota(shape, 2, offset));
  m.graph.outputs = {softmax(m, m.op(NodeKind::Select, {mask, x, m.constant(shape, -1e30)}))};
  check(m.graph, 1e-5);
}

TEST_CASE("rows: layer norm with its statistics") {
  for (int64_t d : {1, 3, 17, 768}) {
    GraphMaker m;
    std::vector<int64_t> shape{2, 5, d};
    int x = m.input(shape), gamma = m.input({d}), beta = m.input({d});
    int scale = m.constant({2, 5}, 1.0 / static_cast<double>(d));
    int mean = m.mul(m.reduce(ReduceKind::Sum, x, {2}), scale);
    int centred = m.sub(x, m.broadcast(mean, shape, {0, 1}));
    int variance = m.mul(m.reduce(ReduceKind::Sum, m.mul(centred, centred), {2}), scale);
    int rstd = m.op(NodeKind::Rsqrt, {m.add(variance, m.constant({2, 5}, 1e-5))});
    int normal = m.mul(centred, m.broadcast(rstd, shape, {0, 1}));
    m.graph.outputs = {m.add(m.mul(normal, m.broadcast(gamma, shape, {2})), m.broadcast(beta, shape, {2})), mean, rstd};
    check(m.graph, 2e-5);
  }
}

TEST_CASE("columns: bias gradient with its prologue stored, siblings") {
  for (int64_t c : {1, 3, 17, 48, 300, 1024}) {
    GraphMaker m;
    std::vector<int64_t> shape{2, 19, c};
    int x = m.input(shape), dy = m.input(shape);
    int g = m.op(NodeKind::Select, {m.compare(Predicate::Gt, x, m.constant(shape, 0)), dy, m.constant(shape, 0)});
    m.graph.outputs = {g, m.reduce(ReduceKind::Sum, g, {0, 1}), m.reduce(ReduceKind::Sum, m.mul(g, x), {0, 1}),
                       m.reduce(ReduceKind::Max, x, {0, 1})};
    check(m.graph, 1e-5);
  }
}

TEST_CASE("rounding errors of a sum do not grow with its length") {
  // Equal numbers: their rounding errors do not cancel. One after the other, 20,000 times 0.1 is wrong by 1.7e-4.
  const auto sum = [](std::vector<int64_t> shape, std::vector<int64_t> dims, int64_t left) {
    GraphMaker m;
    int x = m.input(shape);
    if (left) {
      shape[1] -= left; // the loops of a slice cannot become one
      x = m.slice(x, {0, left, 0}, shape);
    }
    m.graph.outputs = {m.reduce(ReduceKind::Sum, m.add(m.mul(x, m.constant(shape, 0)), m.constant(shape, 0.1)), dims)};
    check(m.graph, 4e-6);
  };
  sum({20000, 48}, {0}, 0);
  sum({3, 20000, 20}, {1}, 0);
  sum({20, 1003, 16}, {0, 1}, 3);
  sum({2, 100001}, {1}, 0);
  sum({2, 5, 20003}, {1, 2}, 0);
}

TEST_CASE("columns: blocks divide them, so that no lanes are masked") {
  for (int64_t c : {8, 24, 40, 88, 144, 1000}) {
    GraphMaker m;
    std::vector<int64_t> shape{4, 40, c};
    int keep = m.input(shape, DType::I1), dy = m.input(shape);
    m.graph.outputs = {m.reduce(ReduceKind::Sum, m.op(NodeKind::Select, {keep, dy, m.constant(shape, 0)}), {1})};
    const auto nest = loopNestOf(m.graph, nullptr, 8);
    REQUIRE(nest);
    CHECK(nest->shape == Shape::Columns);
    CHECK(c % (nest->width * nest->unroll) == 0);
    check(m.graph);
  }
}

TEST_CASE("a quotient has the same bits in every loop that computes it") {
  // The gradient of a largest element is divided by the number of elements that are equal to it.
  for (const Target target : {Target::X86_64_v3, Target::X86_64_v4})
    for (const int64_t reduced : {0, 1})
      for (const int64_t divided : {0, 1}) {
        if (!target.runsHere())
          continue;
        GraphMaker m;
        const std::vector<int64_t> shape{9, 37};
        const int x = m.input(shape), y = m.input({shape[divided]}),
                  quotient = m.div(x, m.broadcast(y, shape, {divided}));
        m.graph.outputs = {quotient, m.reduce(ReduceKind::Max, quotient, {reduced})};
        const auto inputs = randomInputs(m.graph, 11);
        const LoopNest nest = *loopNestOf(m.graph, nullptr, lanesOf(target));
        LoadedKernel kernel(nest, target);
        const auto outputs = execute(nest, kernel, m.graph, inputs, 1);
        const TestTensor each = unpack(outputs[0], shape, DType::F32),
                         largest = unpack(outputs[1], {shape[1 - reduced]}, DType::F32);
        std::vector<int> equal(largest.data.size());
        for (size_t i = 0; i < each.data.size(); ++i) {
          const size_t row = i / 37, column = i % 37;
          CHECK(each.data[i] == static_cast<float>(inputs[0].data[i] / inputs[1].data[divided ? column : row]));
          equal[reduced ? row : column] += each.data[i] == largest.data[reduced ? row : column];
        }
        CHECK(std::ranges::count(equal, 0) == 0);
      }
}

TEST_CASE("batch norm over samples and positions") {
  for (auto shape :
       std::vector<std::vector<int64_t>>{{4, 3, 5, 5}, {3, 20, 1, 1}, {2, 5, 16, 16}, {3, 4, 7, 7}, {5, 1, 3, 3}}) {
    GraphMaker m;
    int x = m.input(shape), weight = m.input({shape[1]}), running = m.input({shape[1]});
    double count = static_cast<double>(shape[0] * shape[2] * shape[3]);
    std::vector<int64_t> c{shape[1]};
    int mean = m.mul(m.reduce(ReduceKind::Sum, x, {0, 2, 3}), m.constant(c, 1 / count));
    int centred = m.sub(x, m.broadcast(mean, shape, {1}));
    int variance = m.mul(m.reduce(ReduceKind::Sum, m.mul(centred, centred), {0, 2, 3}), m.constant(c, 1 / count));
    int scale = m.mul(weight, m.op(NodeKind::Rsqrt, {m.add(variance, m.constant(c, 1e-5))}));
    m.graph.outputs = {m.op(NodeKind::Relu, {m.mul(centred, m.broadcast(scale, shape, {1}))}), mean, variance,
                       m.add(m.mul(running, m.constant(c, 0.9)), m.mul(mean, m.constant(c, 0.1)))};
    check(m.graph, 2e-5);
  }
}

TEST_CASE("full reductions") {
  for (auto shape : std::vector<std::vector<int64_t>>{{1000}, {3, 17}, {7, 5, 3}}) {
    GraphMaker m;
    int x = m.input(shape);
    std::vector<int64_t> dims;
    for (size_t i = 0; i < shape.size(); ++i)
      dims.push_back(static_cast<int64_t>(i));
    int s = m.reduce(ReduceKind::Sum, m.mul(x, x), dims);
    m.graph.outputs = {s, m.op(NodeKind::Sqrt, {s}), m.reduce(ReduceKind::Max, x, dims),
                       m.reduce(ReduceKind::Min, x, dims)};
    check(m.graph, 1e-5);
  }
}

TEST_CASE("indexing alone: transpose, slice, pad, concat") {
  GraphMaker t;
  t.graph.outputs = {t.transpose(t.input({37, 50}), {1, 0})};
  check(t.graph);
  GraphMaker h;
  h.graph.outputs = {h.transpose(h.input({2, 9, 4, 16}), {0, 2, 1, 3})};
  check(h.graph);
  GraphMaker s;
  s.graph.outputs = {s.slice(s.input({7, 40}), {2, 3}, {4, 33})};
  check(s.graph);
  GraphMaker p;
  p.graph.outputs = {p.pad(p.input({5, 21}), {1, 2}, {2, 3})};
  check(p.graph);
  GraphMaker c;
  c.graph.outputs = {c.concat({c.input({3, 5}), c.input({3, 20}), c.input({3, 1})}, 1)};
  check(c.graph);
  GraphMaker d;
  d.graph.outputs = {d.concat({d.input({300}), d.input({21})}, 0)};
  check(d.graph);
  GraphMaker i;
  i.graph.outputs = {i.iota({3, 40}, 1), i.iota({3, 40}, 0, i.scalarInput())};
  std::swap(i.graph.nodes[0], i.graph.nodes[1]); // inputs must come first
  i.graph.nodes[2].operands = {0};
  i.graph.outputs = {1, 2};
  check(i.graph);
  GraphMaker k;
  int base = k.input({4, 6});
  k.graph.outputs = {k.add(base, k.table({4, 6}, std::vector<double>{0,  1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11,
                                                                     12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23}))};
  check(k.graph);
}

TEST_CASE("attention heads: bias, split into q, k, v, and back") {
  GraphMaker m;
  int x = m.input({2, 5, 96}), bias = m.input({96});
  int y = m.reshape(m.add(x, m.broadcast(bias, {2, 5, 96}, {2})), {2, 5, 3, 2, 16});
  for (int64_t part : {0, 1, 2}) {
    int s = m.reshape(m.slice(y, {0, 0, part, 0, 0}, {2, 5, 1, 2, 16}), {2, 5, 2, 16});
    m.graph.outputs.push_back(m.transpose(s, {0, 2, 1, 3}));
  }
  check(m.graph);
  GraphMaker g;
  std::vector<int> parts;
  for (int64_t part : {0, 1, 2}) {
    int q = g.reshape(g.transpose(g.input({2, 2, 5, 16}), {0, 2, 1, 3}), {2, 5, 1, 2, 16});
    parts.push_back(g.pad(q, {0, 0, part, 0, 0}, {0, 0, 2 - part, 0, 0}));
  }
  int sum = g.add(g.add(parts[0], parts[1]), parts[2]);
  g.graph.outputs = {sum};
  // Inputs must come first: rebuild the graph in that order.
  KernelGraph ordered;
  std::vector<int> where(g.graph.nodes.size());
  for (bool inputs : {true, false})
    for (size_t i = 0; i < g.graph.nodes.size(); ++i)
      if ((g.graph.nodes[i].kind == NodeKind::Input) == inputs) {
        where[i] = static_cast<int>(ordered.nodes.size());
        ordered.nodes.push_back(g.graph.nodes[i]);
      }
  for (Node &n : ordered.nodes)
    for (int &o : n.operands)
      o = where[static_cast<size_t>(o)];
  ordered.outputs = {where[static_cast<size_t>(sum)]};
  check(ordered);
}

TEST_CASE("rows: a sum's terms are not those that its user's concat takes") {
  for (int64_t rows : {1, 5}) {
    GraphMaker m;
    const std::vector<int64_t> shape{rows, 9};
    int x = m.input(shape), y = m.input(shape);
    auto turned = [&](int v) { return m.concat({m.slice(v, {0, 5}, {rows, 4}), m.slice(v, {0, 0}, {rows, 5})}, 1); };
    int v = turned(m.mul(x, y));
    v = m.mul(v, rowBroadcast(m, m.reduce(ReduceKind::Sum, m.mul(v, v), {1}), shape));
    int padded = m.pad(m.slice(v, {0, 2}, {rows, 7}), {0, 0}, {0, 2});
    m.graph.outputs = {m.add(turned(m.mul(v, y)), padded)};
    check(m.graph);
  }
}

TEST_CASE("reshapes split loops") {
  GraphMaker m;
  int x = m.input({4, 15}), y = m.input({4, 3, 5});
  m.graph.outputs = {m.add(m.reshape(m.op(NodeKind::Relu, {x}), {4, 3, 5}), y), m.op(NodeKind::Neg, {x})};
  check(m.graph);
  GraphMaker r; // reductions of the same rows, seen in two shapes
  int a = r.input({6, 20}), b = r.input({2, 3, 20});
  int s = r.reduce(ReduceKind::Sum, a, {1}), q = r.reduce(ReduceKind::Sum, r.mul(b, r.reshape(a, {2, 3, 20})), {2});
  r.graph.outputs = {s, q};
  check(r.graph, 1e-5);
}

TEST_CASE("cross entropy rows with labels") {
  GraphMaker m;
  std::vector<int64_t> shape{9, 10};
  int x = m.input(shape), labels = m.input({9}, DType::I32);
  int top = m.reduce(ReduceKind::Max, x, {1});
  int e = m.op(NodeKind::Exp, {m.sub(x, m.broadcast(top, shape, {0}))});
  int lse = m.add(m.op(NodeKind::Log, {m.reduce(ReduceKind::Sum, e, {1})}), top);
  int hit = m.compare(Predicate::Eq, m.iota(shape, 1), m.broadcast(labels, shape, {0}));
  int picked = m.reduce(ReduceKind::Sum, m.op(NodeKind::Select, {hit, x, m.constant(shape, 0)}), {1});
  m.graph.outputs = {m.sub(lse, picked), lse};
  check(m.graph, 1e-5);
}

TEST_CASE("an output cannot overwrite what a later sweep reads") {
  GraphMaker m;
  int x = m.input({3, 40});
  int y = m.op(NodeKind::Neg, {x});
  int s = m.reduce(ReduceKind::Sum, x, {1});
  m.graph.outputs = {y, m.mul(x, m.broadcast(s, {3, 40}, {0}))};
  LoopNest p = check(m.graph, 1e-5);
  auto pairs = p.mayAlias();
  REQUIRE(std::find(pairs.begin(), pairs.end(), std::pair(0, 0)) == pairs.end());
  REQUIRE(std::find(pairs.begin(), pairs.end(), std::pair(1, 0)) != pairs.end());
}

TEST_CASE("what is not one kernel is refused") {
  GraphMaker m;
  int x = m.input({4, 6});
  m.graph.outputs = {m.reduce(ReduceKind::Sum, x, {0}), m.reduce(ReduceKind::Sum, x, {1})};
  REQUIRE(!loopNestOf(m.graph));
  GraphMaker n;
  int a = n.input({4}), b = n.input({5});
  n.graph.outputs = {n.op(NodeKind::Neg, {a}), n.op(NodeKind::Neg, {b})};
  REQUIRE(!loopNestOf(n.graph));
}

TEST_CASE("sums of shifted sums are refused before they have been followed along every path") {
  GraphMaker m;
  const int64_t size = 5;
  int x = m.broadcast(m.input({}), {3, size}, {}); // such as the gradient of a mean: equal values in many places
  for (int sums = 0; sums < 8; ++sums) {
    int all = x;
    for (int64_t step = 1; step < size; step *= 2) // as cumsum is traced
      all = m.add(all, m.pad(m.slice(all, {0, 0}, {3, size - step}), {0, step}, {0, 0}));
    x = m.add(x, all);
  }
  m.graph.outputs = {x};
  std::string why;
  CHECK(!loopNestOf(m.graph, &why));
  CHECK(why == "too large");
}

TEST_CASE("transposes are walked in blocks") {
  for (auto shape : std::vector<std::vector<int64_t>>{{128, 96}, {67, 131}, {64, 17}, {17, 80}}) {
    GraphMaker m;
    int x = m.input(shape), y = m.input({shape[1], shape[0]});
    m.graph.outputs = {m.add(m.transpose(m.op(NodeKind::Exp, {x}), {1, 0}), y)};
    check(m.graph);
  }
  GraphMaker m;
  m.graph.outputs = {m.transpose(m.input({3, 80, 64, 2}), {0, 2, 3, 1})};
  check(m.graph);
}

TEST_CASE("elementary functions at the ends of their range") {
  double inf = INFINITY, nan = NAN;
  struct Example {
    NodeKind kind;
    std::vector<double> x, y;
  };
  for (const Example &e : std::vector<Example>{
           {NodeKind::Exp,
            {-1e30, -104.5, -100, -88, 0, 88.7, 89, inf, -inf, nan},
            {0, 0, 3.783505853677006e-44, 6.0546018954011858e-39, 1, 3.3263e38, inf, inf, 0, nan}},
           {NodeKind::Log, {0, 1e-40, 1, inf, -1, nan, 3e38}, {-inf, -92.1034, 0, inf, nan, nan, 88.5969}},
           {NodeKind::Tanh,
            {-inf, -1e30, -1e-20, 0, 1e-6, 0.5, 20, inf, nan},
            {-1, -1, -1e-20, 0, 1e-6, 0.46211716, 1, 1, nan}},
           {NodeKind::Sigmoid, {-inf, -1e30, 0, 1e30, inf, nan}, {0, 0, 0.5, 1, 1, nan}},
           {NodeKind::Erf, {-inf, -5, -1e-20, 0, 1, 5, inf, nan}, {-1, -1, -1.128379e-20, 0, 0.84270079, 1, 1, nan}},
           {NodeKind::Sin, {-inf, -1e4, -1e-20, 0, 1e4, inf, nan}, {nan, 0.30561439, -1e-20, 0, -0.30561439, nan, nan}},
           {NodeKind::Cos, {-inf, -1e4, 0, 1e4, inf, nan}, {nan, -0.95215537, 1, -0.95215537, nan, nan}},
           // 16367173 * 2^72 is the number of type f32 that is nearest to a multiple of pi/2.
           {NodeKind::Sin, {0x1.f37c8ap+95, 1e30, 5, -3.4e38}, {1, -0.791163439, -0.958924275, 0.244084875}},
           {NodeKind::Cos,
            {0x1.f37c8ap+95, -1e30, 5, 3.4e38},
            {-1.61476980e-9, -0.611604785, 0.283662185, 0.969753873}},
           {NodeKind::Relu, {-inf, -1, 0, 2, inf, nan}, {0, 0, 0, 2, inf, nan}}}) {
    INFO(nodeName(e.kind));
    GraphMaker m;
    int64_t n = static_cast<int64_t>(e.x.size());
    m.graph.outputs = {m.op(e.kind, {m.input({n})})};
    for (const Target target : Target::all(Target::Kind::Cpu)) {
      if (!target.runsHere())
        continue;
      LoopNest p = *loopNestOf(m.graph, nullptr, lanesOf(target));
      LoadedKernel kernel(p, target);
      auto found = unpack(execute(p, kernel, m.graph, {{{n}, DType::F32, e.x}}, 1)[0], {n}, DType::F32);
      for (size_t i = 0; i < e.x.size(); ++i) {
        INFO("at " << e.x[i] << " found " << found.data[i] << ", wanted " << e.y[i]);
        double f = found.data[i], w = e.y[i];
        CHECK((std::isnan(w)   ? std::isnan(f)
               : std::isinf(w) ? f == w
                               : std::fabs(f - w) <= 2e-4 * std::fabs(w) + 2e-45));
      }
    }
  }
}

TEST_CASE("sine and cosine are right to the last digits of 1 for any number") {
  for (NodeKind kind : {NodeKind::Sin, NodeKind::Cos})
    for (double range : {1.0, 100.0, 1e4, 1e5, 1.1e5, 1e7, 3e12, 1e30, 3.4e38}) {
      GraphMaker m;
      int64_t n = 100003;
      m.graph.outputs = {m.op(kind, {m.input({n})})};
      LoopNest p = *loopNestOf(m.graph, nullptr, lanesOf(hostTarget()));
      LoadedKernel kernel(p, hostTarget());
      TestTensor x{{n}, DType::F32, {}};
      for (int64_t i = 0; i < n; ++i)
        x.data.push_back(static_cast<float>(range * (2 * static_cast<double>(i) / static_cast<double>(n) - 1)));
      auto found = unpack(execute(p, kernel, m.graph, {x}, 1)[0], {n}, DType::F32);
      double worst = 0;
      for (size_t i = 0; i < x.data.size(); ++i)
        worst = cleave::test::worseOf(
            worst, std::fabs(found.data[i] - (kind == NodeKind::Sin ? std::sin(x.data[i]) : std::cos(x.data[i]))));
      INFO(nodeName(kind) << " up to " << range << " is off by " << worst);
      CHECK(worst <= 1.5e-7);
    }
}

TEST_CASE("elementary functions are within a few units in the last place") {
  for (auto [kind, low, high, ulps] :
       std::vector<std::tuple<NodeKind, double, double, double>>{{NodeKind::Exp, -80, 80, 2},
                                                                 {NodeKind::Log, 1e-6, 50, 2},
                                                                 {NodeKind::Tanh, -9, 9, 4},
                                                                 {NodeKind::Erf, -4, 4, 4},
                                                                 {NodeKind::Sigmoid, -20, 20, 3}}) {
    GraphMaker m;
    int64_t n = 100003;
    m.graph.outputs = {m.op(kind, {m.input({n})})};
    LoopNest p = *loopNestOf(m.graph, nullptr, lanesOf(hostTarget()));
    LoadedKernel kernel(p, hostTarget());
    TestTensor x{{n}, DType::F32, {}};
    for (int64_t i = 0; i < n; ++i)
      x.data.push_back(static_cast<float>(low + (high - low) * static_cast<double>(i) / static_cast<double>(n)));
    auto found = unpack(execute(p, kernel, m.graph, {x}, 1)[0], {n}, DType::F32);
    auto wanted = evaluate(m.graph, {x})[0];
    double worst = 0;
    for (size_t i = 0; i < found.data.size(); ++i) {
      double w = wanted.data[i], ulp = std::ldexp(1.0, std::max(std::ilogb(w) - 23, -149));
      if (w != 0)
        worst = cleave::test::worseOf(worst, std::fabs(found.data[i] - w) / ulp);
    }
    INFO(nodeName(kind) << " is off by " << worst << " units");
    CHECK(worst <= ulps);
  }
}
