// Random models on random clusters of GPUs, for tests of what a search finds.
#pragma once
#include "Models.h"
#include "frontend/trace/TraceModel.h"
#include "passes/search/StrategySearch.h"
#include "runtime/plan/plan_generated.h"

#include <cstdlib>
#include <fmt/format.h>
#include <memory>
#include <random>
#include <sstream>
#include <tuple>

namespace cleave::test {

using Random = std::mt19937;
template <class T> T one(Random &random, std::vector<T> values) { return values[random() % values.size()]; }

struct DrawnConv : Module {
  ModuleList<Conv2d> layers;
  Linear head;
  DrawnConv(const std::vector<int64_t> &channels, const std::string &name)
      : layers{*this, name}, head{*this, "head", channels.back(), 10} {
    for (size_t i = 0; i < channels.size(); ++i)
      layers.emplace(i == 0 ? 1 : channels[i - 1], channels[i], Conv2dOptions{.padding = 1});
  }
  Tensor forward(Tensor x) {
    for (Conv2d &layer : layers)
      x = relu(layer(x));
    return head(mean(x, {2, 3}));
  }
};

/// Nodes of equal GPUs.
struct DrawnCluster {
  double memory, rate, fp32, fp16; ///< of a device: GiB, GB/s, TFLOP/s
  int nodes, each;
  double inside, network, latency; ///< GB/s, and microseconds between nodes

  explicit DrawnCluster(Random &random) {
    double fast = 0;
    std::tie(memory, rate, fp32, fp16, fast) = one<std::tuple<double, double, double, double, double>>(
        random, {{16, 900, 15.7, 125, 130}, {40, 1555, 19.5, 312, 300}, {80, 3350, 67, 989, 450}});
    nodes = one<int>(random, {1, 2, 2, 3, 4}), each = one<int>(random, {2, 4, 4, 8});
    inside = one<double>(random, {fast, fast, 16.0}), network = one<double>(random, {1.25, 3.125, 25.0, 100.0});
    latency = one<double>(random, {3.0, 5.0, 30.0});
  }
  std::shared_ptr<const partitioner::ClusterFile> file() const {
    return partitioner::ClusterFile::parse(
        fmt::format("name = \"drawn\"\n[devices.gpu]\nbackend = \"cuda\"\nmemory_gib = {:.1f}\n"
                    "memory_gb_per_s = {:.1f}\npeak_tflops = {{ fp32 = {:.1f}, fp16 = {:.1f} }}\n"
                    "[[nodes]]\ncount = {}\ndevices = {{ gpu = {} }}\ninside = {{ gb_per_s = {:.1f}, "
                    "latency_us = 3.0 }}\n[network]\ngb_per_s_per_node = {:.3f}\nlatency_us = {:.1f}\n",
                    memory, rate, fp32, fp16, nodes, each, inside, network, latency),
        "drawn.toml");
  }
};

/// A random model on a random cluster.
struct SearchCase {
  Random random;
  DrawnCluster cluster;
  std::string what;
  std::unique_ptr<Module> root;
  Model model;
  TrainConfig config;
  passes::PlanRequest request;

  explicit SearchCase(unsigned seed, const std::string &layerNames = "layers") : random(seed), cluster(random) {
    request.cluster = cluster.file();
    what = fmt::format("{}x{} of {} GiB, {} and {} GB/s", cluster.nodes, cluster.each, cluster.memory, cluster.inside,
                       cluster.network);
    drawModel(layerNames);
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
  void drawModel(const std::string &layerNames) {
    const int64_t devices = request.cluster->cluster.deviceCount();
    const auto widths = [&](std::vector<int64_t> from, size_t most) {
      std::vector<int64_t> drawn(1 + random() % most);
      for (int64_t &width : drawn)
        width = one(random, from);
      return drawn;
    };
    const Optimizer optimizer = random() % 2 ? Optimizer(Adam{.lr = 1e-3}) : Optimizer(Sgd{.lr = 0.1, .momentum = 0.9});
    const auto keep = [&](auto made, const char *name) {
      model = makeModel(*made, name);
      root = std::move(made);
    };
    const auto ofPictures = [&](const char *kind, const std::vector<int64_t> &drawn, std::vector<int64_t> rows) {
      config = {.data = Mnist{}, .loss = crossEntropy, .optimizer = optimizer, .batch = devices * one(random, rows)};
      what = fmt::format("{} {}, batch {} on {}", kind, fmt::join(drawn, ","), config.batch, what);
    };
    switch (random() % 3) {
    case 0: {
      const int64_t heads = one<int64_t>(random, {4, 8, 12}), width = heads * 64,
                    vocab = one<int64_t>(random, {256, 8192}), context = one<int64_t>(random, {128, 256, 512});
      const int layers = one<int>(random, {1, 2, 3, 5, 12});
      keep(std::make_unique<Gpt>(layers, width, heads, context, vocab, layerNames), "gpt");
      config = {.data = Text{.context = context, .vocab = vocab},
                .optimizer = optimizer,
                .batch = devices * one<int64_t>(random, {1, 2, 4, 8})};
      what = fmt::format("gpt of {} x {}, vocabulary {}, context {}, batch {} on {}", layers, width, vocab, context,
                         config.batch, what);
      break;
    }
    case 1: {
      const std::vector<int64_t> drawn = widths({512, 1024, 4096, 32768}, 6);
      keep(std::make_unique<Mlp>(drawn, layerNames), "mlp");
      ofPictures("mlp", drawn, {8, 64, 512});
      break;
    }
    default: {
      const std::vector<int64_t> drawn = widths({8, 32, 64, 128}, 5);
      keep(std::make_unique<DrawnConv>(drawn, layerNames), "conv");
      ofPictures("conv", drawn, {8, 64});
    }
    }
  }
};

/// Calls fn(seed) for `count` seeds, or for those of CLEAVE_SEARCH_SEEDS="FIRST COUNT".
template <class F> void forEachSeed(unsigned count, F fn) {
  unsigned first = 0;
  if (const char *seeds = std::getenv("CLEAVE_SEARCH_SEEDS"))
    std::istringstream(seeds) >> first >> count;
  for (unsigned seed = first; seed < first + count; ++seed)
    fn(seed);
}

} // namespace cleave::test
