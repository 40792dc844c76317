// Deep models: the memory of a compilation grows linearly with the layers; models that are too deep are rejected.
#include "frontend/trace/Diagnose.h"
#include "partitioner/apply/LocalPrograms.h"
#include "passes/pipeline/Phases.h"
#include "tests/unit/frontend/Support.h"

#include <deque>
#include <malloc.h>

using namespace cleave;
using namespace cleave::test;

namespace {

struct Layer : Module {
  LayerNorm norm;
  Linear up, down;
  Layer(Module &parent, std::string name)
      : Module(parent, std::move(name)), norm{*this, "norm", 8}, up{*this, "up", 8, 16}, down{*this, "down", 16, 8} {}
  Tensor forward(Tensor x) { return x + down(gelu(up(norm(x)))); }
};

struct Deep : Module {
  Linear in{*this, "in", 784, 8}, out{*this, "out", 8, 10};
  ModuleList<Layer> layers;
  explicit Deep(int64_t depth) : layers{*this, "layers", depth} {}
  Tensor forward(Tensor image) { return out(layers(in(flatten(image, 1)))); }
};

/// Bytes allocated now. Deterministic if one thread repeats the same work.
size_t allocated() {
  const struct mallinfo2 info = mallinfo2();
  return info.uordblks + info.hblkhd;
}

/// Bytes still allocated after the local programs of a model are made: the IR, and all attributes and types ever
/// created.
double bytesOfStep(int64_t depth, const char *mesh) {
  const size_t before = allocated();
  Deep model(depth);
  const TrainConfig config{.data = Mnist{}, .loss = crossEntropy, .optimizer = AdamW{}, .clipNorm = 1, .batch = 4};
  GraphModule graph = traceModel(makeModel(model), config, 4);
  passes::CompileOptions options;
  options.batch = 4;
  options.strategy.mesh = partitioner::parseMesh(mesh);
  const partitioner::LocalPrograms applied = passes::applyStrategy(graph, options);
  return static_cast<double>(allocated() - before);
}

} // namespace

TEST_CASE("a compilation keeps twice as much of a model that is twice as deep") {
  for (const char *mesh : {"dp=1", "dp=2,tp=2"}) {
    INFO(mesh);
    bytesOfStep(10, mesh); // allocates what is created only once
    CHECK(bytesOfStep(100, mesh) < 2.2 * bytesOfStep(50, mesh));
  }
}

TEST_CASE("a model of too many parts is refused while it is made") {
  Module model;
  std::deque<Module> list;
  const std::string message = mistake([&] {
    while (list.size() <= mostParts)
      list.emplace_back(model, std::to_string(list.size()));
  });
  CHECK(static_cast<int64_t>(list.size()) == mostParts);
  CHECK(has(message, "a model may have at most 1048576 modules, parameters and buffers; 1048576 exceeds this"));
}

TEST_CASE("a pass of too many ops is refused while it is traced") {
  struct Long : Module {
    Tensor forward(Tensor x) {
      while (true)
        x = relu(x);
    }
  } model;
  const unsigned line = __LINE__ - 3;
  const std::string message = mistake([&] { traced(model); });
  CHECK(has(message, "DepthTest.cpp:" + std::to_string(line) + ":"));
  CHECK(has(message, "relu: one pass over the model may have at most 1048576 ops, and this op exceeds that"));
}

TEST_CASE("parameters that no machine holds are refused before the model is traced") {
  struct Wide : Module {
    std::deque<Linear> layers;
    Wide() {
      for (int i = 0; i < 40; ++i)
        layers.emplace_back(*this, std::to_string(i), int64_t(1) << 20, int64_t(1) << 19);
    }
    Tensor forward(Tensor x) { return x; }
  } model;
  const std::string message = mistake([&] { traced(model); });
  CHECK(has(message, "the parameters take"));
  CHECK(has(message, "and the largest machine has 65536.0 GiB of memory; the largest is 0.weight"));
}
