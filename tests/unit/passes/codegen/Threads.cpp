// How GPU threads divide kernels: access widths, rows held in registers, lines of threads over columns. The tests use
// uneven sizes; any number of blocks must give the same bits.
#include "passes/codegen/Codegen.h"
#include "passes/codegen/gpu/GpuEmit.h"
#include "passes/codegen/gpu/Ptx.h"
#include "tests/support/Worst.h"
#include "tests/unit/passes/codegen/Reference.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>

using cleave::Target;
using namespace cleave::passes::kernel;

namespace {

constexpr DType half = DType::BF16, f32 = DType::F32;

/// Runs on one block, on as many blocks as a launch would have, and on odd numbers between them; the bits must be
/// equal. The run on one block must agree with the reference within `tolerance` of the largest result.
LoopNest check(const KernelGraph &graph, double tolerance = 1e-5) {
  std::string why;
  std::optional<LoopNest> nest = loopNestOf(graph, &why, 1);
  INFO(why);
  REQUIRE(nest);
  INFO(nest->str());
  auto inputs = randomInputs(graph, 5);
  auto wanted = evaluate(graph, inputs);
  LoadedKernel kernel(*nest, Target::X86_64_v3);
  auto whole = execute(*nest, kernel, graph, inputs, 1);
  for (size_t o = 0; o < whole.size(); ++o) {
    TestTensor found = unpack(whole[o], wanted[o].shape, wanted[o].type);
    double scale = 1e-3, worst = 0;
    for (size_t i = 0; i < found.data.size(); ++i) {
      scale = std::max(scale, std::fabs(wanted[o].data[i]));
      worst = cleave::test::worseOf(worst, std::fabs(found.data[i] - wanted[o].data[i]));
    }
    CHECK(worst <= scale * (dtypeSize(wanted[o].type) == 2 ? 8e-3 : tolerance));
  }
  for (int64_t blocks : {int64_t{2}, int64_t{5}, std::min<int64_t>(launchOf(*nest).blocks(), 40)})
    CHECK(execute(*nest, kernel, graph, inputs, static_cast<int>(blocks)) == whole);
  for (auto pair : nest->mayAlias())
    CHECK(execute(*nest, kernel, graph, inputs, 3, {pair}) == whole);
  return *nest;
}

int spread(GraphMaker &m, int rows, const std::vector<int64_t> &shape) { return m.broadcast(rows, shape, {0}); }

/// Softmax of rows of `type`, computed in f32.
KernelGraph softmax(std::vector<int64_t> shape, DType type) {
  GraphMaker m;
  int x = m.cast(m.input(shape, type), f32);
  int e = m.op(NodeKind::Exp, {m.sub(x, spread(m, m.reduce(ReduceKind::Max, x, {1}), shape))});
  m.graph.outputs = {m.cast(m.div(e, spread(m, m.reduce(ReduceKind::Sum, e, {1}), shape)), type)};
  return m.graph;
}

/// Layer norm: rows in `type`, weights in f32; the statistics are results too.
KernelGraph layerNorm(int64_t rows, int64_t width, DType type) {
  GraphMaker m;
  std::vector<int64_t> shape{rows, width};
  int in = m.input(shape, type), gamma = m.input({width}), beta = m.input({width});
  int x = m.cast(in, f32), scale = m.constant({rows}, 1.0 / static_cast<double>(width));
  int mean = m.mul(m.reduce(ReduceKind::Sum, x, {1}), scale), centred = m.sub(x, spread(m, mean, shape));
  int variance = m.mul(m.reduce(ReduceKind::Sum, m.mul(centred, centred), {1}), scale);
  int rstd = m.op(NodeKind::Rsqrt, {m.add(variance, m.constant({rows}, 1e-5))});
  int normal = m.mul(centred, spread(m, rstd, shape));
  int y = m.add(m.mul(normal, m.broadcast(gamma, shape, {1})), m.broadcast(beta, shape, {1}));
  m.graph.outputs = {m.cast(y, type), mean, rstd};
  return m.graph;
}

/// The gradient of ReLU and the bias gradient.
KernelGraph biasGradient(int64_t rows, int64_t columns, DType type) {
  GraphMaker m;
  std::vector<int64_t> shape{rows, columns};
  int x = m.input(shape, type), dy = m.input(shape, type);
  int g =
      m.op(NodeKind::Select, {m.compare(Predicate::Gt, x, m.constant(shape, 0, type)), dy, m.constant(shape, 0, type)});
  m.graph.outputs = {g, m.reduce(ReduceKind::Sum, m.cast(g, f32), {0})};
  return m.graph;
}

int loadWidth(const LoopNest &p, int buffer) {
  for (const LoopValue &v : p.values)
    if (v.kind == ValueKind::Load && v.buffer == buffer)
      return accessWidth(p, v.expr, v.type, v.conditions);
  return 0;
}

} // namespace

TEST_CASE("threads: flat maps of mixed types", "[threads]") {
  for (int64_t n : {1, 2, 7, 8, 9, 1023, 2048, 5000})
    for (DType type : {half, DType::F16, f32, DType::I1, DType::I64}) {
      GraphMaker m;
      int x = m.input({n}, type), y = m.input({n});
      int sum = m.add(m.cast(x, f32), y);
      m.graph.outputs = {sum, m.cast(m.op(NodeKind::Relu, {sum}), half),
                         m.compare(Predicate::Gt, y, m.constant({n}, 0)), m.cast(x, DType::I64)};
      LoopNest p = check(m.graph);
      if (n > 1) {
        CHECK(p.threads.chunk == 8);
        CHECK(loadWidth(p, 1) == 4); // 16 bytes of f32
      }
    }
}

TEST_CASE("threads: aligned rows are read 16 bytes at a time, others as they allow", "[threads]") {
  for (auto [columns, width] : std::vector<std::pair<int64_t, int>>{{64, 8}, {40, 8}, {36, 4}, {34, 2}, {33, 1}}) {
    GraphMaker m;
    std::vector<int64_t> shape{5, columns};
    int x = m.input(shape, half), bias = m.input({columns}, half);
    m.graph.outputs = {m.add(x, m.broadcast(bias, shape, {1}))};
    LoopNest p = check(m.graph);
    CHECK(loadWidth(p, 0) == width);
  }
  for (auto [start, width] : std::vector<std::pair<int64_t, int>>{{8, 8}, {4, 4}, {2, 2}, {3, 1}}) { // a slice
    GraphMaker m;
    m.graph.outputs = {m.op(NodeKind::Neg, {m.slice(m.input({6, 64}, half), {1, start}, {4, 48})})};
    LoopNest p = check(m.graph);
    CHECK(loadWidth(p, 0) == width);
  }
}

TEST_CASE("threads: parts that are joined or padded are read whole where their borders are aligned", "[threads]") {
  for (int64_t size : {16, 20, 17}) {
    GraphMaker m;
    int a = m.input({3, size}), c = m.input({3, 32 - size % 2});
    m.graph.outputs = {m.concat({a, c}, 1)};
    LoopNest p = check(m.graph);
    CHECK(loadWidth(p, 0) == (size % 4 ? 1 : 4));
    GraphMaker q;
    q.graph.outputs = {q.pad(q.input({3, size}), {1, 8}, {0, 4})};
    check(q.graph);
  }
}

TEST_CASE("threads: rows that fit stay in registers", "[threads]") {
  for (int64_t width : {1, 5, 33, 64, 100, 768, 1000, 1001, 2056, 4096})
    for (DType type : {half, f32}) {
      LoopNest p = check(softmax({3, width}, type));
      CHECK((width == 1 || p.threads.held));
      p = check(layerNorm(5, width, type), 1e-4);
      CHECK((width == 1 || p.threads.held));
    }
  CHECK(check(softmax({1, 4096}, half)).threads.group > 32); // one row uses a whole block
}

TEST_CASE("threads: rows that are too long are walked", "[threads]") {
  for (int64_t width : {17000, 20011, 32768}) {
    LoopNest p = check(softmax({2, width}, half));
    CHECK_FALSE(p.threads.held);
    CHECK(p.threads.group > 32);
  }
}

TEST_CASE("threads: rows of several reduced dimensions", "[threads]") {
  for (auto shape : std::vector<std::vector<int64_t>>{{4, 3, 7, 7}, {8, 2, 16, 16}, {64, 2, 28, 28}, {1, 3, 3, 5}}) {
    GraphMaker m;
    int x = m.cast(m.input(shape, half), f32);
    std::vector<int64_t> c{shape[1]};
    double count = static_cast<double>(shape[0] * shape[2] * shape[3]);
    int mean = m.mul(m.reduce(ReduceKind::Sum, x, {0, 2, 3}), m.constant(c, 1 / count));
    int centred = m.sub(x, m.broadcast(mean, shape, {1}));
    m.graph.outputs = {mean,
                       m.mul(m.reduce(ReduceKind::Sum, m.mul(centred, centred), {0, 2, 3}), m.constant(c, 1 / count)),
                       m.cast(centred, half), m.reduce(ReduceKind::Max, x, {0, 2, 3})};
    check(m.graph, 2e-5);
  }
}

TEST_CASE("threads: columns are shared by lines of threads", "[threads]") {
  for (auto [rows, columns] : std::vector<std::pair<int64_t, int64_t>>{
           {1, 8}, {2, 3}, {3, 1000}, {19, 48}, {64, 768}, {100, 33}, {257, 1}, {300, 264}, {1000, 7}})
    for (DType type : {half, f32})
      check(biasGradient(rows, columns, type), 2e-5);
  LoopNest p = check(biasGradient(64, 768, half));
  CHECK(p.shape == Shape::Columns);
  CHECK(p.threads.group > 1);
  CHECK(loadWidth(p, 0) == 8);
  GraphMaker m; // all lines of threads read `running`; the first line may overwrite it
  int x = m.input({70, 24}), running = m.input({24});
  int mean = m.mul(m.reduce(ReduceKind::Sum, x, {0}), m.constant({24}, 1.0 / 70));
  m.graph.outputs = {m.sub(x, m.broadcast(m.add(mean, running), {70, 24}, {1})), m.add(running, mean)};
  check(m.graph);
}

TEST_CASE("threads: integers and many results of one column", "[threads]") {
  for (DType type : {DType::I32, DType::I64}) {
    GraphMaker m;
    int x = m.input({50, 40}, type);
    m.graph.outputs = {m.reduce(ReduceKind::Sum, x, {0}), m.reduce(ReduceKind::Max, x, {0}),
                       m.reduce(ReduceKind::Min, x, {0})};
    check(m.graph);
    GraphMaker r;
    int y = r.input({3, 2000}, type);
    r.graph.outputs = {r.reduce(ReduceKind::Sum, y, {1}), r.reduce(ReduceKind::Max, y, {1}),
                       r.reduce(ReduceKind::Min, y, {1})};
    check(r.graph);
  }
}

TEST_CASE("threads: elementary functions at the ends of their range", "[threads]") {
  const double inf = INFINITY, nan = NAN;
  struct Example {
    NodeKind kind;
    std::vector<double> x, y;
  };
  for (const Example &e : std::vector<Example>{
           {NodeKind::Exp,
            {-inf, -1e30, -88, -1, 0, 60, 88.7, 1e30, inf, nan},
            {0, 0, 6.0546018954e-39, 0.36787944, 1, 1.1420073898e26, 3.32597685e38, inf, inf, nan}},
           {NodeKind::Sigmoid,
            {-inf, -1e30, -20, 0, 3, 1e30, inf, nan},
            {0, 0, 2.0611536e-9, 0.5, 0.95257413, 1, 1, nan}},
           {NodeKind::Tanh, {-inf, -1e-20, 0, 1e-6, 0.5, 20, inf, nan}, {-1, -1e-20, 0, 1e-6, 0.46211716, 1, 1, nan}},
           {NodeKind::Sin,
            {-inf, -1e4, 1e-6, 0.5, 1e4, 1e30, -3.4e38, nan},
            {nan, 0.30561439, 1e-6, 0.47942554, -0.30561439, -0.79116344, 0.24408487, nan}},
           {NodeKind::Cos,
            {inf, -1e4, 0, 0.5, 1e4, 1e30, 0x1.f37c8ap+95, nan},
            {nan, -0.95215537, 1, 0.87758256, -0.95215537, -0.61160479, -1.6147698e-9, nan}},
           {NodeKind::Tan, {1e-6, 0.5, -1.5, -1e30, nan}, {1e-6, 0.54630249, -14.1014199, -1.2935859, nan}},
           {NodeKind::Sinh,
            {-inf, -89, -1e-6, 0, 0.5, 45, 89.3, inf, nan},
            {-inf, -2.2448063e38, -1e-6, 0, 0.52109531, 1.7467136e19, 3.0301862e38, inf, nan}},
           {NodeKind::Expm1,
            {-inf, -30, -1e-6, 0, 0.5, 45, 88.7, inf, nan},
            {-1, -1, -1e-6, 0, 0.64872127, 3.4934271e19, 3.32597685e38, inf, nan}},
           {NodeKind::Log1p,
            {-2, -1, -1e-6, 0, 1e-6, 2, 1e30, inf, nan},
            {nan, -inf, -1e-6, 0, 1e-6, 1.0986123, 69.077553, inf, nan}},
           {NodeKind::Round, {-1.5, -0.5, 0.5, 2.5, 8388609, inf, nan}, {-2, 0, 0, 2, 8388609, inf, nan}},
           {NodeKind::Rsqrt, {0, 4, 1e30, inf, nan}, {inf, 0.5, 1e-15, 0, nan}}}) {
    INFO(nodeName(e.kind));
    GraphMaker m;
    const auto n = static_cast<int64_t>(e.x.size());
    m.graph.outputs = {m.op(e.kind, {m.input({n})})};
    LoopNest p = *loopNestOf(m.graph, nullptr, 1);
    LoadedKernel kernel(p, Target::X86_64_v3);
    auto found = unpack(execute(p, kernel, m.graph, {{{n}, f32, e.x}}, 1)[0], {n}, f32);
    for (size_t i = 0; i < e.x.size(); ++i) {
      INFO("at " << e.x[i] << " found " << found.data[i] << ", wanted " << e.y[i]);
      const double f = found.data[i], w = e.y[i];
      CHECK((std::isnan(w) ? std::isnan(f) : std::isinf(w) ? f == w : std::fabs(f - w) <= 1e-5 * std::fabs(w) + 2e-45));
    }
  }
}

TEST_CASE("threads: the range of a large angle is reduced without a call", "[threads][ptx]") {
  GraphMaker m;
  int x = m.input({64, 1024});
  m.graph.outputs = {m.add(m.op(NodeKind::Sin, {x}), m.op(NodeKind::Tan, {x}))};
  const LoopNest nest = *loopNestOf(m.graph, nullptr, 1);
  const std::string ptx = ptxOf({{"angles", &nest}}, Target::Sm90);
  CHECK(ptx.find(".entry angles") != std::string::npos);
  CHECK(ptx.find("call") == std::string::npos);
  CHECK(ptx.find(".local") == std::string::npos);
}

TEST_CASE("threads: memory moves 16 bytes at a time, with few registers and no spills", "[threads][ptx]") {
  const std::vector<std::pair<std::string, KernelGraph>> graphs{{"norm", layerNorm(8192, 768, half)},
                                                                {"softmax", softmax({98304, 1024}, half)},
                                                                {"vocabulary", softmax({8192, 50304}, half)},
                                                                {"bias", biasGradient(8192, 768, half)},
                                                                {"columns", biasGradient(64, 3072, f32)}};
  std::vector<LoopNest> nests;
  for (const auto &[name, graph] : graphs)
    nests.push_back(*loopNestOf(graph, nullptr, 1));
  std::vector<NamedLoopNest> kernels;
  for (size_t i = 0; i < graphs.size(); ++i)
    kernels.push_back({graphs[i].first, &nests[i]});
  const std::string ptx = ptxOf(kernels, Target::Sm90);
  for (const auto &[name, graph] : graphs) {
    const size_t begin = ptx.find(".entry " + name), end = ptx.find("\n}\n", begin);
    const std::string code = ptx.substr(begin, end - begin);
    INFO(name);
    CHECK(code.find("ld.global.v4.b32") != std::string::npos);
    CHECK(code.find("st.global.v4.b32") != std::string::npos);
    CHECK(code.find("ld.global.b16") == std::string::npos);
    CHECK(code.find("div.rn") == std::string::npos); // div.rn would be a call
  }
  if (findPtxas().empty())
    return;
  for (const KernelResources &kernel : assemble(ptx, Target::Sm90).kernels) {
    INFO(kernel.symbol << ": " << kernel.registers << " registers, " << kernel.sharedBytes << " bytes shared");
    CHECK(kernel.spillBytes == 0);
    CHECK(kernel.registers <= 96);
    CHECK(kernel.sharedBytes <= 40 * 1024);
  }
}
