// Code that reads its sizes: kernels of one form and many sizes share it, and compute the bits of code of their own.
#include "passes/codegen/Codegen.h"
#include "tests/unit/passes/codegen/Reference.h"

#include <catch2/catch.hpp>

using cleave::Target;
using namespace cleave::passes;
using namespace cleave::passes::kernel;

namespace {

using Dims = std::vector<int64_t>;

/// One form of kernel in several sizes.
struct Form {
  const char *name;
  KernelGraph (*graph)(const Dims &);
  std::vector<Dims> shapes; ///< whose code is the same
  std::vector<Dims> others; ///< whose code differs from the first
};

KernelGraph normalised(const Dims &shape) {
  GraphMaker m;
  const int x = m.input(shape), mean = m.input({shape[2]}), scale = m.input({shape[2]});
  m.graph.outputs = {
      m.op(NodeKind::Relu, {m.mul(m.sub(x, m.broadcast(mean, shape, {2})), m.broadcast(scale, shape, {2}))})};
  return m.graph;
}

KernelGraph sums(const Dims &shape) {
  GraphMaker m;
  const int x = m.input(shape), dy = m.input(shape);
  const int g = m.op(NodeKind::Select, {m.compare(Predicate::Gt, x, m.constant(shape, 0)), dy, m.constant(shape, 0)});
  m.graph.outputs = {g, m.reduce(ReduceKind::Sum, g, {1}), m.reduce(ReduceKind::Sum, m.mul(g, x), {1})};
  return m.graph;
}

/// The number of elements is a constant of the kernel, too.
KernelGraph means(const Dims &shape) {
  GraphMaker m;
  const double count = static_cast<double>(shape[0] * shape[1]);
  const int mean = m.div(m.reduce(ReduceKind::Sum, m.input(shape), {0, 1}), m.constant({shape[2]}, count));
  m.graph.outputs = {mean, m.mul(mean, m.constant({shape[2]}, count / (count - 1)))};
  return m.graph;
}

KernelGraph rows(const Dims &shape) {
  GraphMaker m;
  const int x = m.input(shape, DType::BF16);
  const int mean =
      m.mul(m.reduce(ReduceKind::Sum, x, {2}), m.constant({shape[0], shape[1]}, 1.0 / shape[2], DType::BF16));
  m.graph.outputs = {m.sub(x, m.broadcast(mean, shape, {0, 1}))};
  return m.graph;
}

KernelGraph turned(const Dims &shape) {
  GraphMaker m;
  m.graph.outputs = {m.transpose(m.input(shape), {0, 2, 1})};
  return m.graph;
}

/// A part that begins inside of the rows.
KernelGraph parts(const Dims &shape) {
  GraphMaker m;
  const int x = m.input(shape);
  const Dims half{shape[0], shape[1], shape[2] / 2};
  m.graph.outputs = {m.mul(m.slice(x, {0, 0, half[2]}, half), m.slice(x, {0, 0, 0}, half))};
  return m.graph;
}

const std::vector<Form> forms = {
    {"map", normalised, {{2, 9, 256}, {3, 5, 512}, {7, 1, 1024}}, {{2, 9, 250}, {2, 9, 16}}},
    {"map with a rest", normalised, {{2, 9, 250}, {3, 5, 501}}, {{2, 9, 256}}},
    {"columns", sums, {{2, 9, 256}, {3, 49, 512}, {5, 2, 1024}}, {{2, 9, 300}, {2, 9, 10}}},
    {"columns with a rest", sums, {{2, 9, 300}, {3, 49, 513}}, {{2, 9, 256}}},
    {"means of columns", means, {{2, 9, 256}, {3, 49, 512}, {8, 4, 1024}}, {{2, 9, 300}}},
    {"rows", rows, {{2, 9, 384}, {3, 5, 128}, {1, 2, 768}}, {{2, 9, 387}, {2, 9, 10}}},
    {"rows with a rest", rows, {{2, 9, 387}, {3, 5, 901}}, {{2, 9, 384}}},
    {"transpose", turned, {{2, 128, 64}, {3, 256, 64}}, {{2, 128, 192}}},
    {"parts", parts, {{2, 9, 512}, {3, 5, 1024}}, {{2, 9, 500}}},
};

LoopNest nestOf(const KernelGraph &graph, Target target) {
  std::string why;
  const std::optional<LoopNest> nest = loopNestOf(graph, &why, lanesOf(target));
  INFO(why);
  REQUIRE(nest);
  return *nest;
}

} // namespace

TEST_CASE("kernels that differ in their sizes share code", "[codegen]") {
  for (const Target target : {Target::X86_64_v3, Target::X86_64_v4}) {
    if (!target.runsHere())
      continue;
    ObjectCompiler compiler(target);
    for (const Form &form : forms) {
      INFO(form.name);
      const LoopNest first = nestOf(form.graph(form.shapes[0]), target);
      const Sizes firstSizes(first);
      const std::vector<char> code = compiler.compile({{"code", &first, false, false, firstSizes}});
      for (const Dims &shape : form.shapes) {
        const KernelGraph graph = form.graph(shape);
        const LoopNest nest = nestOf(graph, target);
        const Sizes sizes(nest);
        REQUIRE(nest.str(sizes) == first.str(firstSizes));
        CHECK(compiler.compile({{"code", &nest, false, false, sizes}}) == code);
        LoadedKernel shared({code, compiler.assemble(assemblyOf({{"kernel", "code", sizes}}))});
        LoadedKernel own({compiler.compile({{"kernel", &nest}})});
        const auto inputs = randomInputs(graph, 3);
        for (const int pieces : {1, 3})
          CHECK(execute(nest, shared, graph, inputs, pieces) == execute(nest, own, graph, inputs, 1));
      }
      for (const Dims &shape : form.others) {
        const LoopNest nest = nestOf(form.graph(shape), target);
        CHECK(nest.str(Sizes(nest)) != first.str(firstSizes));
      }
    }
  }
}

TEST_CASE("code that works for any extent or depends on sizes otherwise reads none", "[codegen]") {
  GraphMaker flat;
  flat.graph.outputs = {flat.op(NodeKind::Exp, {flat.input({100})})};
  GraphMaker padded;
  padded.graph.outputs = {padded.pad(padded.input({3, 40}), {1, 0}, {1, 3})};
  GraphMaker table;
  const int values = table.table({7}, {1, 2, 3, 5, 7, 11, 13});
  table.graph.outputs = {table.mul(table.input({7, 64}), table.broadcast(values, {7, 64}, {0}))};
  for (const KernelGraph &graph : {flat.graph, padded.graph, table.graph})
    CHECK(Sizes(nestOf(graph, Target::X86_64_v3)).empty());
}
