// A search that is told to stop gives up what it compiles, and takes the best strategy that it has.
#include "frontend/trace/TraceModel.h"
#include "passes/pipeline/Pipeline.h"
#include "passes/search/StrategySearch.h"
#include "runtime/base/Error.h"
#include "runtime/plan/plan_generated.h"

#include <atomic>
#include <catch2/catch.hpp>
#include <cleave/cleave.h>

using namespace cleave;

namespace {

const char *const nodes = "name = \"nodes\"\n[devices.gpu]\nbackend = \"cuda\"\nmemory_gib = 80.0\nmemory_gb_per_s = "
                          "2039.0\npeak_tflops = { fp32 = 19.5, tf32 = 156.0, fp16 = 312.0, bf16 = 312.0 }\n[[nodes]]\n"
                          "count = 2\ndevices = { gpu = 2 }\ninside = { gb_per_s = 300.0, latency_us = 3.0 }\n"
                          "[network]\ngb_per_s_per_node = 50.0\nlatency_us = 8.0\n";

struct Mlp : Module {
  ModuleList<Linear> layers{*this, "layers"};
  Linear head{*this, "head", 784, 10};
  Mlp() {
    for (int i = 0; i < 4; ++i)
      layers.emplace(784, 784);
  }
  Tensor forward(Tensor image) {
    Tensor x = flatten(image, 1);
    for (Linear &layer : layers)
      x = relu(layer(x));
    return head(x);
  }
};

struct Searched {
  Mlp mlp;
  TrainConfig config{.data = Mnist{}, .loss = crossEntropy, .optimizer = Sgd{.lr = 0.1}, .batch = 4096};
  passes::PlanRequest options;
  std::atomic<int> traces{0};

  Searched() {
    options.backend = Target::Kind::Cuda;
    options.cluster = partitioner::ClusterFile::parse(nodes, "the cluster");
    options.batch = options.evalBatch = config.batch;
    options.code = false;
  }
  passes::Trace trace() {
    return [this](int64_t rows, int64_t evalRows) {
      ++traces;
      return traceModel(makeModel(mlp, "mlp"), config, rows, evalRows);
    };
  }
  passes::FoundStrategy search(Stops stops) {
    options.toSearch = {.devices = 4, .batch = config.batch, .evalBatch = config.batch};
    return passes::searchStrategy(trace(), options, std::move(stops));
  }
};

} // namespace

TEST_CASE("a compilation that is told to stop gives up") {
  Searched searched;
  searched.options.strategy.mesh = partitioner::parseMesh("dp=2");
  for (const int after : {0, 1, 5, 10}) {
    std::atomic<int> asked{0};
    const passes::CompileContext context{.stops = [&] { return asked++ >= after; }};
    CHECK_THROWS_AS(passes::compile(searched.trace()(4096, 4096), searched.options, context), Stopped);
    CHECK((after > 5 || asked == after + 1)); // then several functions at a time
  }
}

TEST_CASE("a search that is told to stop compiles at most what it must write") {
  std::atomic<int64_t> asked{0};
  Searched whole;
  const passes::FoundStrategy best = whole.search([&] { return ++asked < 0; });
  REQUIRE(best.record);
  CHECK(!best.record->stopped_early);
  const int64_t all = asked;
  CHECK(all > 100);
  int found = 0;
  for (const int64_t part : {0, 50, 90}) {
    Searched one;
    std::atomic<int64_t> more{0};
    std::atomic<int> tracesBefore{0};
    const auto stops = [&] {
      const int64_t now = ++more, last = part * all / 100;
      if (now == last + 1)
        tracesBefore = one.traces.load();
      return now > last;
    };
    CAPTURE(part);
    try {
      const passes::FoundStrategy early = one.search(stops);
      ++found;
      CHECK(early.record->stopped_early);
      CHECK(early.plan);
      CHECK(early.record->step >= best.record->lower * 0.999);
    } catch (const Error &error) {
      CHECK_THAT(error.what(), Catch::Contains("it was stopped before it found a strategy"));
    }
    CHECK(one.traces <= tracesBefore + 1); // a finalist
  }
  CHECK(found > 0);
}
