// What a search finds against what it finds where the mesh and the order of its axes are pinned, on random models and
// clusters.
#include "Models.h"
#include "frontend/trace/TraceModel.h"
#include "passes/search/StrategySearch.h"
#include "runtime/base/Error.h"
#include "runtime/plan/PlanFile.h"
#include "runtime/plan/plan_generated.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <fmt/format.h>
#include <random>
#include <sstream>

using namespace cleave;
using namespace cleave::partitioner;
using namespace cleave::test;

namespace {

using Random = std::mt19937;
template <class T> T one(Random &random, std::vector<T> values) { return values[random() % values.size()]; }

struct Conv : Module {
  ModuleList<Conv2d> layers{*this, "layers"};
  Linear head;
  explicit Conv(const std::vector<int64_t> &channels) : head{*this, "head", channels.back(), 10} {
    for (size_t i = 0; i < channels.size(); ++i)
      layers.emplace(i == 0 ? 1 : channels[i - 1], channels[i], Conv2dOptions{.padding = 1});
  }
  Tensor forward(Tensor x) {
    for (Conv2d &layer : layers)
      x = relu(layer(x));
    return head(mean(x, {2, 3}));
  }
};

/// A random model on a random cluster.
struct Case {
  std::string what;
  std::unique_ptr<Module> root;
  Model model;
  TrainConfig config;
  passes::PlanRequest request;

  explicit Case(unsigned seed) {
    Random random(seed);
    drawCluster(random);
    drawModel(random);
    request.backend = Target::Kind::Cuda;
    request.precision = Precision::parse({.type = "fp16"}, Target::Kind::Cuda);
    request.batch = config.batch;
    request.code = false;
    request.searchCache = passes::newSearchCache();
    request.toSearch = {.pins = {}, .devices = request.cluster->cluster.deviceCount(), .batch = config.batch};
  }

  passes::Trace trace() const {
    return [this](int64_t rows, int64_t evalRows) { return traceModel(model, config, rows, evalRows); };
  }
  passes::FoundStrategy found() const { return passes::searchStrategy(trace(), request); }

private:
  void drawCluster(Random &random) {
    const auto [memory, rate, fp32, fp16, fast] = one<std::tuple<double, double, double, double, double>>(
        random, {{16, 900, 15.7, 125, 130}, {40, 1555, 19.5, 312, 300}, {80, 3350, 67, 989, 450}});
    const int nodes = one<int>(random, {1, 2, 2, 3, 4}), each = one<int>(random, {2, 4, 4, 8});
    const double inside = one<double>(random, {fast, fast, 16.0}),
                 network = one<double>(random, {1.25, 3.125, 25.0, 100.0}),
                 latency = one<double>(random, {3.0, 5.0, 30.0});
    const std::string toml = fmt::format(
        "name = \"drawn\"\n[devices.gpu]\nbackend = \"cuda\"\nmemory_gib = {:.1f}\nmemory_gb_per_s = "
        "{:.1f}\npeak_tflops "
        "= {{ fp32 = {:.1f}, fp16 = {:.1f} }}\n[[nodes]]\ncount = {}\ndevices = {{ gpu = {} }}\ninside = {{ gb_per_s = "
        "{:.1f}, latency_us = 3.0 }}\n[network]\ngb_per_s_per_node = {:.3f}\nlatency_us = {:.1f}\n",
        memory, rate, fp32, fp16, nodes, each, inside, network, latency);
    request.cluster = ClusterFile::parse(toml, "drawn.toml");
    what = fmt::format("{}x{} of {} GiB, {} and {} GB/s", nodes, each, memory, inside, network);
  }

  void drawModel(Random &random) {
    const int64_t devices = request.cluster->cluster.deviceCount();
    const auto widths = [&](std::vector<int64_t> from, size_t most) {
      std::vector<int64_t> drawn(1 + random() % most);
      for (int64_t &width : drawn)
        width = one(random, from);
      return drawn;
    };
    const Optimizer optimizer = random() % 2 ? Optimizer(Adam{.lr = 1e-3}) : Optimizer(Sgd{.lr = 0.1, .momentum = 0.9});
    switch (random() % 3) {
    case 0: {
      const int64_t heads = one<int64_t>(random, {4, 8, 12}), width = heads * 64,
                    vocab = one<int64_t>(random, {256, 8192}), context = one<int64_t>(random, {128, 256, 512});
      const int layers = one<int>(random, {1, 2, 3, 5, 12});
      auto gpt = std::make_unique<Gpt>(layers, width, heads, context, vocab);
      model = makeModel(*gpt, "gpt");
      root = std::move(gpt);
      config = {.data = Text{.context = context, .vocab = vocab},
                .optimizer = optimizer,
                .batch = devices * one<int64_t>(random, {1, 2, 4, 8})};
      what = fmt::format("gpt of {} x {}, vocabulary {}, context {}, batch {} on {}", layers, width, vocab, context,
                         config.batch, what);
      break;
    }
    case 1: {
      const std::vector<int64_t> drawn = widths({512, 1024, 4096, 32768}, 6);
      auto mlp = std::make_unique<Mlp>(drawn);
      model = makeModel(*mlp, "mlp");
      root = std::move(mlp);
      config = {.data = Mnist{},
                .loss = crossEntropy,
                .optimizer = optimizer,
                .batch = devices * one<int64_t>(random, {8, 64, 512})};
      what = fmt::format("mlp {}, batch {} on {}", fmt::join(drawn, ","), config.batch, what);
      break;
    }
    default: {
      const std::vector<int64_t> drawn = widths({8, 32, 64, 128}, 5);
      auto conv = std::make_unique<Conv>(drawn);
      model = makeModel(*conv, "conv");
      root = std::move(conv);
      config = {.data = Mnist{},
                .loss = crossEntropy,
                .optimizer = optimizer,
                .batch = devices * one<int64_t>(random, {8, 64})};
      what = fmt::format("conv {}, batch {} on {}", fmt::join(drawn, ","), config.batch, what);
    }
    }
  }
};

/// Every mesh of so many ranks, with every order of the axes that split.
std::vector<Mesh> meshesOf(int64_t ranks) {
  std::vector<Mesh> all;
  for (int64_t dp = 1; dp <= ranks; ++dp)
    for (int64_t tp = 1; tp <= ranks / dp; ++tp)
      if (ranks % (dp * tp) == 0) {
        std::vector<std::string> axes;
        for (const auto &[name, size] : {std::pair("dp", dp), std::pair("tp", tp), std::pair("pp", ranks / dp / tp)})
          if (size > 1)
            axes.push_back(fmt::format("{}={}", name, size));
        std::ranges::sort(axes);
        do
          all.push_back(parseMesh(fmt::format("{}", fmt::join(axes, "/"))));
        while (std::ranges::next_permutation(axes).found);
      }
  return all;
}

void compare(unsigned first, unsigned count) {
  for (unsigned seed = first; seed < first + count; ++seed) {
    Case drawn(seed);
    const passes::FoundStrategy found = drawn.found();
    double best = found.record->step;
    std::string which = "none";
    const int64_t ranks = drawn.request.toSearch->devices;
    for (const Mesh &mesh : meshesOf(ranks)) {
      drawn.request.toSearch->pins.mesh = mesh;
      try {
        if (const double step = drawn.found().record->step; step < best)
          best = step, which = meshText(mesh);
      } catch (const Error &) { // the mesh does not suit the model, or no plan fits
      }
    }
    INFO("seed " << seed << ": " << drawn.what << ": " << 1e3 * found.record->step << " ms, bound "
                 << 1e3 * found.record->lower << ", " << meshText(found.strategy.mesh) << "; " << 1e3 * best
                 << " with the mesh " << which);
    CHECK(best >= 0.999 * found.record->step);
    fmt::print(stderr, "{}: {:.3f} of {:.3f} ms\n", seed, best / found.record->step, 1e3 * found.record->step);
  }
}

} // namespace

/// Takes about a minute for each model: run by hand, by its name. CLEAVE_PIN_SEEDS="FIRST COUNT" draws others.
TEST_CASE("no pinned mesh of 23 models is faster", "[.]") {
  unsigned first = 0, count = 23;
  if (const char *seeds = std::getenv("CLEAVE_PIN_SEEDS"))
    std::istringstream(seeds) >> first >> count;
  compare(first, count);
}
