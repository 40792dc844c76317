// The estimates of the search against the simulation of the compiled plans, on random plans of the space.
#include "Models.h"
#include "frontend/trace/TraceModel.h"
#include "partitioner/search/Sites.h"
#include "partitioner/simulate/Memory.h"
#include "partitioner/simulate/Simulate.h"
#include "passes/pipeline/Pipeline.h"
#include "passes/search/StrategySearch.h"
#include "runtime/base/Error.h"
#include "runtime/plan/PlanFile.h"
#include "runtime/plan/plan_generated.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <fmt/format.h>
#include <numeric>
#include <random>

using namespace cleave;
using namespace cleave::partitioner;
using namespace cleave::test;

namespace {

/// Nodes of 8 devices.
std::string clusterOf(const char *device, int nodes, double inside, double network) {
  return fmt::format("name = \"drawn\"\n{}[[nodes]]\ncount = {}\ndevices = {{ gpu = 8 }}\ninside = {{ gb_per_s = {}, "
                     "latency_us = 3.0 }}\n[network]\ngb_per_s_per_node = {}\nlatency_us = 8.0\n",
                     device, nodes, inside, network);
}
const char *const a100 =
    "[devices.gpu]\nbackend = \"cuda\"\nmemory_gib = 80.0\nmemory_gb_per_s = 2039.0\npeak_tflops = "
    "{ fp32 = 19.5, tf32 = 156.0, fp16 = 312.0, bf16 = 312.0 }\n";
const char *const h100 =
    "[devices.gpu]\nbackend = \"cuda\"\nmemory_gib = 80.0\nmemory_gb_per_s = 3350.0\npeak_tflops = "
    "{ fp32 = 67.0, tf32 = 494.0, fp16 = 989.0, bf16 = 989.0 }\n";

struct Drawn {
  std::string what;
  double estimated, simulated, estimatedBytes, bytes;
  double error() const { return std::abs(estimated / simulated - 1); }
};

/// Estimates and simulates `count` random plans.
void draw(const Model &model, TrainConfig config, const std::string &cluster, int64_t devices, size_t count,
          std::mt19937 &random, std::vector<Drawn> &drawn) {
  const auto batch = config.batch;

  const passes::Trace trace = [&](int64_t rows, int64_t evalRows) { return traceModel(model, config, rows, evalRows); };
  passes::PlanRequest options;
  options.backend = Target::Kind::Cuda;
  options.cluster = ClusterFile::parse(cluster, "the cluster");
  options.batch = options.evalBatch = batch;
  options.code = false;
  options.precision = Precision::parse({.type = "bf16"}, Target::Kind::Cuda);
  options.toSearch = {.devices = devices, .batch = batch, .evalBatch = batch};
  const Space space{.asked = *options.toSearch, .layers = 9};
  const Cluster &parsed = options.cluster->cluster;
  const Sites sites(parsed, devices);
  const std::vector<PlanGroup> groups = groupsOf(space, sites);
  passes::PlanEstimates estimates(trace, options);
  for (size_t have = 0, tries = 0; have < count && tries < 20 * count; ++tries) {
    const PlanGroup &group = groups[random() % groups.size()];
    const std::vector<ScheduleChoice> schedules = schedulesOf(space, group);
    if (schedules.empty() || group.split.rowsOfRank() == 0)
      continue;
    const ScheduleChoice &schedule = schedules[random() % schedules.size()];
    const auto estimated = estimates.of(group, schedule);
    if (!estimated)
      continue;
    passes::CompileOptions full = options;
    full.strategy = estimated->strategy;
    std::vector<uint8_t> bytes;
    try {
      bytes = passes::compile(trace(batch / group.microbatches, batch / group.microbatches), full);
    } catch (const Error &error) {
      if (error.status == Status::User)
        continue;
      throw;
    }
    const auto file = PlanFile::fromBytes(std::move(bytes), "a drawn plan");
    double most = 0;
    for (uint32_t p = 0; p < file->plan().programs()->size(); ++p)
      most = std::max(most, static_cast<double>(file->plan().programs()->Get(p)->peak_bytes()));
    drawn.push_back(
        {fmt::format("{}, {}, {} microbatches, {} x{}, recompute {}, zero {}{}", model.name, meshText(group.mesh()),
                     group.microbatches, schedule.name, schedule.chunks, text(group.split.recompute), group.split.zero,
                     group.split.sequence ? ", sequence" : ""),
         estimated->estimate.seconds, simulate(file->plan(), parsed).stepSeconds, estimated->estimate.bytes, most});
    ++have;
  }
}

double median(std::vector<double> values) {
  std::ranges::nth_element(values, values.begin() + std::ssize(values) / 2);
  return values[values.size() / 2];
}

/// Spearman's rank correlation.
double rankCorrelation(const std::vector<Drawn> &drawn) {
  const auto ranks = [&](double Drawn::*value) {
    std::vector<size_t> order(drawn.size());
    std::iota(order.begin(), order.end(), 0);
    std::ranges::stable_sort(order, {}, [&](size_t i) { return drawn[i].*value; });
    std::vector<double> ranks(drawn.size());
    for (size_t r = 0; r < order.size(); ++r)
      ranks[order[r]] = static_cast<double>(r);
    return ranks;
  };
  const std::vector<double> a = ranks(&Drawn::estimated), b = ranks(&Drawn::simulated);
  double squares = 0;
  for (size_t i = 0; i < a.size(); ++i)
    squares += (a[i] - b[i]) * (a[i] - b[i]);
  const auto n = static_cast<double>(a.size());
  return 1 - 6 * squares / (n * (n * n - 1));
}

void compare(size_t each, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<Drawn> drawn;
  const std::vector<std::pair<std::string, int64_t>> clusters = {
      {clusterOf(a100, 2, 300, 200), 16}, {clusterOf(a100, 4, 240, 25), 32}, {clusterOf(h100, 1, 450, 400), 8}};
  for (const auto &[cluster, devices] : clusters) {
    Gpt gpt(8, 4096, 32, 1024, 51200);
    draw(makeModel(gpt, "gpt"),
         {.data = Text{.context = 1024, .vocab = 51200}, .optimizer = Adam{.lr = 1e-3}, .batch = 128}, cluster, devices,
         each, random, drawn);
    Mlp mlp(std::vector<int64_t>(8, 4096));
    draw(makeModel(mlp, "mlp"),
         {.data = Mnist{}, .loss = crossEntropy, .optimizer = Sgd{.lr = 0.1, .momentum = 0.9}, .batch = 4096}, cluster,
         devices, each, random, drawn);
  }
  std::vector<double> errors, memory;
  std::string lines;
  std::ranges::sort(drawn, std::greater(), &Drawn::error);
  for (const Drawn &one : drawn) {
    errors.push_back(one.error()), memory.push_back(std::abs(one.estimatedBytes / one.bytes - 1));
    lines +=
        fmt::format("{:6.1f}%  estimated {:.3f} ms, simulated {:.3f} ms, memory {:+.1f}%: {}\n", 100 * one.error(),
                    1e3 * one.estimated, 1e3 * one.simulated, 100 * (one.estimatedBytes / one.bytes - 1), one.what);
  }
  INFO(lines << drawn.size() << " plans, median error " << median(errors) << ", rank correlation "
             << rankCorrelation(drawn) << ", median error of memory " << median(memory));
  CHECK(drawn.size() == 6 * each);
  CHECK(median(errors) < 0.05);
  CHECK(std::accumulate(errors.begin(), errors.end(), 0.0) < 0.07 * static_cast<double>(errors.size()));
  CHECK(median(memory) < 0.05);
  CHECK(rankCorrelation(drawn) > 0.95);
}

} // namespace

TEST_CASE("estimates of random plans are close to their simulation") { compare(25, 11); }

/// Takes a minute: run by hand, by its name.
TEST_CASE("estimates of 300 random plans", "[.]") { compare(50, 1); }
