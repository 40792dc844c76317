// Costs with many ranks along axis dp, from the plan of two, against those of their own plan.
#include "partitioner/search/DataRanks.h"
#include "frontend/trace/TraceModel.h"
#include "partitioner/cluster/Cluster.h"
#include "partitioner/search/LayerCosts.h"
#include "partitioner/search/Sites.h"
#include "passes/pipeline/Pipeline.h"
#include "runtime/plan/PlanFile.h"
#include "runtime/plan/plan_generated.h"

#include <catch2/catch.hpp>
#include <cleave/cleave.h>
#include <fmt/format.h>

using namespace cleave;
using namespace cleave::partitioner;

namespace {

struct Mlp : Module {
  Linear first{*this, "first", 784, 4096}, middle{*this, "middle", 4096, 4096}, last{*this, "last", 4096, 16};
  Tensor forward(Tensor image) { return last(relu(middle(relu(first(flatten(image, 1)))))); }
};

const char *const nodes = "name = \"nodes\"\n[devices.gpu]\nbackend = \"cuda\"\nmemory_gib = 80.0\nmemory_gb_per_s = "
                          "2039.0\npeak_tflops = { fp32 = 19.5, tf32 = 156.0, fp16 = 312.0, bf16 = 312.0 }\n[[nodes]]\n"
                          "count = 8\ndevices = { gpu = 8 }\ninside = { gb_per_s = 300.0, latency_us = 3.0 }\n"
                          "[network]\ngb_per_s_per_node = 50.0\nlatency_us = 8.0\n";

/// A plan in which every rank has as many rows.
std::shared_ptr<const PlanFile> planOf(const std::string &mesh, int64_t data, int64_t zero, bool replicasApart) {
  constexpr int64_t rowsOfRank = 512, microbatches = 3;
  Mlp mlp;
  const TrainConfig config{.data = Mnist{}, .loss = crossEntropy, .optimizer = Adam{.lr = 1e-3}, .batch = 1};
  passes::CompileOptions options;
  options.backend = Target::Kind::Cuda;
  options.cluster = ClusterFile::parse(nodes, "the cluster");
  options.batch = data * rowsOfRank * microbatches;
  options.code = false;
  options.precision = Precision::parse({.type = "bf16"}, Target::Kind::Cuda);
  options.strategy.mesh = parseMesh(mesh);
  options.strategy.microbatches = microbatches;
  options.strategy.zero = zero;
  GraphModule model = traceModel(makeModel(mlp, "mlp"), config, data * rowsOfRank, 0);
  return PlanFile::fromBytes(passes::compile(std::move(model), options, {.replicasApart = replicasApart}), mesh);
}

std::vector<std::vector<uint32_t>> groupsOfRanks(const plan::Plan &plan) {
  std::vector<std::vector<uint32_t>> all;
  for (const plan::Rank *rank : *plan.ranks())
    for (const uint32_t group : *rank->groups())
      all.emplace_back(plan.groups()->Get(group)->ranks()->begin(), plan.groups()->Get(group)->ranks()->end());
  return all;
}

} // namespace

TEST_CASE("the plan of two ranks along axis dp tells the costs of more") {
  const int64_t zero = GENERATE(0, 1, 2, 3), tensor = GENERATE(1, 2), data = GENERATE(8, 16);
  CAPTURE(zero, tensor, data);
  const auto mesh = [&](int64_t ranks) { return fmt::format("dp={},tp={}", ranks, tensor); };
  const bool apart = replicasApart(parseMesh(mesh(data)), Cluster::parse(nodes, "the cluster"));
  CHECK(apart == (tensor > 1));
  const auto two = planOf(mesh(2), 2, zero, apart), own = planOf(mesh(data), data, zero, apart);
  const auto table = withDataRanks(two->plan(), static_cast<uint32_t>(data));
  CHECK(groupsOfRanks(table->plan()) == groupsOfRanks(own->plan()));

  const Cluster cluster = Cluster::parse(nodes, "the cluster");
  const SiteCosts wanted = measureLayers(own->plan(), cluster, {}), got = measureLayers(two->plan(), cluster, {}, data);
  REQUIRE(got.size() == 1);
  const PlanCosts &right = wanted[0].costs, &found = got[0].costs;
  const double step = right.total.forward + right.total.backward;
  for (const auto &[path, layer] : right.layers) {
    CAPTURE(path);
    const LayerCost &same = found.layers.at(path);
    for (double LayerCost::*seconds : {&LayerCost::forward, &LayerCost::backward, &LayerCost::forwardWork,
                                       &LayerCost::backwardWork, &LayerCost::gathers, &LayerCost::sums})
      CHECK(same.*seconds == Approx(layer.*seconds).epsilon(0.05).margin(0.01 * step));
    for (double LayerCost::*bytes :
         {&LayerCost::kept, &LayerCost::parameters, &LayerCost::copies, &LayerCost::gradients, &LayerCost::states})
      CHECK(same.*bytes == Approx(layer.*bytes).epsilon(0.01).margin(1024));
    CHECK(same.buckets.size() == layer.buckets.size());
  }
  CHECK(found.beginWork == Approx(right.beginWork).margin(0.01 * step));
  CHECK(found.endWork == Approx(right.endWork).margin(0.01 * step));
  CHECK(found.endOthers == Approx(right.endOthers).margin(0.01 * step));
  CHECK(found.metrics == Approx(right.metrics).margin(0.01 * step));
}
