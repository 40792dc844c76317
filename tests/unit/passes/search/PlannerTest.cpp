// A plan fits the memory of the device that is to run it: by recomputation, or by fewer copies of the model.
#include "passes/search/Planner.h"
#include "frontend/trace/TraceModel.h"
#include "partitioner/cluster/KnownGpus.h"
#include "partitioner/cost/Constants.h"
#include "passes/pipeline/Pipeline.h"
#include "runtime/base/Error.h"
#include "runtime/base/MachineMemory.h"
#include "runtime/plan/Slices.h"
#include "runtime/plan/plan_generated.h"

#include <catch2/catch.hpp>
#include <cleave/cleave.h>
#include <fmt/format.h>
#include <unistd.h>

using namespace cleave;
using partitioner::DeviceHere;
using passes::Purpose;

namespace {

struct Block : Module {
  Linear up{*this, "up", 64, 512}, down{*this, "down", 512, 64};
  using Module::Module;
  Tensor forward(Tensor x) { return x + down(gelu(up(x))); }
};

struct Mlp : Module {
  Linear first{*this, "first", 784, 64};
  ModuleList<Block> blocks{*this, "blocks"};
  Linear head{*this, "head", 64, 10};
  Mlp() {
    for (int i = 0; i < 6; ++i)
      blocks.emplace();
  }
  Tensor forward(Tensor image) {
    Tensor x = first(flatten(image, 1));
    for (Block &block : blocks)
      x = block(x);
    return head(x);
  }
};

struct Requested {
  Mlp mlp;
  TrainConfig config{.data = Mnist{}, .loss = crossEntropy, .optimizer = Adam{}, .batch = 512};
  passes::PlanRequest request;

  explicit Requested(Purpose purpose = Purpose::Training, int64_t batch = 512) {
    request.purpose = purpose;
    request.batch = config.batch = batch;
    request.strategy.mesh = partitioner::oneDevice();
    request.code = false;
  }
  passes::Trace trace() {
    return [this](int64_t rows, int64_t evalRows) {
      return request.purpose == Purpose::Prediction ? tracePrediction(makeModel(mlp, "mlp"), config, rows)
                                                    : traceModel(makeModel(mlp, "mlp"), config, rows, evalRows);
    };
  }
  passes::MadePlan made() { return passes::makePlan(trace(), request, {}); }
  /// Bytes of all ranks of the plan that is asked for.
  double bytes() {
    const auto file = made().file;
    double all = 0;
    for (const plan::Rank *rank : *file->plan().ranks())
      all += static_cast<double>(file->plan().programs()->Get(rank->program())->peak_bytes());
    return all;
  }
  double bytesWith(partitioner::Recomputation kind) {
    request.strategy.recompute = {{partitioner::RecomputeRule::everyLayer, kind, "file"}};
    const double all = bytes();
    request.strategy.recompute.clear();
    return all;
  }
  double bytesOn(const std::string &mesh) {
    request.strategy.mesh = partitioner::parseMesh(mesh);
    const double all = bytes();
    request.strategy.mesh = partitioner::oneDevice();
    return all;
  }
};

} // namespace

TEST_CASE("a training recomputes if its device has too little memory") {
  Requested job;
  const double most = job.bytes(), least = job.bytesWith(partitioner::Recomputation::Full);
  REQUIRE(least < most);
  job.request.device = DeviceHere{.name = "this machine", .bytes = most};
  CHECK(job.made().change.empty());
  job.request.device->bytes = least;
  const passes::MadePlan made = job.made();
  CHECK(made.file->plan().choices()->recompute() != plan::Recomputation::None);
  CHECK_THAT(made.change, Catch::Contains("the least that fits this machine; without recomputation rank 0 needs"));
  job.request.strategy.recompute = {{partitioner::RecomputeRule::everyLayer, partitioner::Recomputation::None, "file"}};
  CHECK_THROWS_WITH(job.made(), Catch::Contains("the plan does not fit this machine: rank 0 needs"));
  job.request.strategy.recompute.clear();
  job.request.device->bytes = least / 2;
  CHECK_THROWS_WITH(job.made(), Catch::Contains("the plan does not fit this machine"));
}

TEST_CASE("ranks that share a memory may need different parts of it") {
  Requested job;
  job.request.strategy.mesh = partitioner::parseMesh("pp=2");
  job.request.strategy.microbatches = 2;
  const double both = job.bytes();
  job.request.strategy.recompute = {{partitioner::RecomputeRule::everyLayer, partitioner::Recomputation::None, "file"}};
  job.request.device = DeviceHere{.name = "this machine", .bytes = both, .ranks = 2};
  CHECK(job.made().file); // the first stage needs more than half
  job.request.device->bytes = both - 1;
  CHECK_THROWS_WITH(job.made(), Catch::Contains("2 ranks need") && Catch::Contains("rank 0 the most") &&
                                    Catch::EndsWith("or a smaller batch would lower it"));
  job.request.device = DeviceHere{.name = "a device", .bytes = both / 2};
  CHECK_THROWS_WITH(job.made(), Catch::Contains("a device has"));
}

TEST_CASE("evaluations and predictions need less memory than training") {
  const double training = Requested().bytes();
  CHECK(Requested(Purpose::Evaluation).bytes() < training / 2);
  CHECK(Requested(Purpose::Prediction).bytes() < training / 2);
}

TEST_CASE("a run without gradients has as many copies of the model as fit") {
  for (const Purpose purpose : {Purpose::Evaluation, Purpose::Prediction}) {
    Requested job(purpose, 8);
    const double four = job.bytesOn("dp=4"), two = job.bytesOn("dp=2,tp=2");
    REQUIRE(two < four);
    const auto meshFor = [&](int64_t batch, double bytes) {
      job.request.batch = job.config.batch = batch;
      job.request.toSearch = {.devices = 4, .batch = batch};
      job.request.device = DeviceHere{.name = "this machine", .bytes = bytes, .ranks = 4};
      return partitioner::meshText(meshOf(job.made().file->plan()));
    };
    CHECK(meshFor(8, four) == "dp=4,tp=1,pp=1");
    CHECK(meshFor(8, two) == "dp=2,tp=2,pp=1");
    CHECK(meshFor(2, four) == "dp=2,tp=2,pp=1"); // a copy needs a row
    CHECK(meshFor(6, four) == "dp=4,tp=1,pp=1"); // shares may be uneven
    CHECK_THROWS_WITH(meshFor(8, 1000), Catch::Contains("the plan does not fit this machine"));
  }
}

TEST_CASE("a search that is asked for orders of its own tries them") {
  Requested job;
  const std::string nodes =
      "name = \"nodes\"\n[devices.gpu]\nbackend = \"cpu\"\nmemory_gib = 1.0\nmemory_gb_per_s = 10.0\n"
      "peak_tflops = { fp32 = 0.1, fp16 = 0.1, bf16 = 0.1 }\n[[nodes]]\ncount = 4\n"
      "devices = { gpu = 1 }\n[network]\ngb_per_s_per_node = 1.0\nlatency_us = 5.0\n";
  job.request.cluster = partitioner::ClusterFile::parse(nodes, "nodes.toml");
  job.request.toSearch = {.devices = 4, .batch = 512};
  job.request.toSearch->pins.mesh = partitioner::parseMesh("pp=4");
  const auto published = job.made().file;
  job.request.toSearch->ownOrders = true;
  const auto own = job.made().file;
  CHECK(own->plan().search()->step() <= published->plan().search()->step());
  CHECK(own->plan().search()->compiled() > published->plan().search()->compiled());
  CHECK(own->plan().search()->lower() <= own->plan().search()->least()); // the bound is that of published schedules
}

TEST_CASE("clusters of GPUs that are known by their names") {
  const auto cluster = partitioner::clusterOfGpus("NVIDIA H200", 150e9, 8);
  REQUIRE(cluster);
  CHECK(partitioner::Cluster::parse(cluster->toToml(), "it") == *cluster);
  CHECK(partitioner::constantsOf(cluster->devices[0]).family == std::string("h200"));
  CHECK(cluster->deviceCount() == 8);
  CHECK(cluster->devices[0].memoryGib == 139.7);
  CHECK_FALSE(partitioner::clusterOfGpus("NVIDIA H100 PCIe", 80e9, 1)->nodes[0].inside);
  CHECK(partitioner::clusterOfGpus("NVIDIA A100-SXM4-80GB", 80e9, 2)->nodes[0].inside->gbPerS == 300);
  CHECK_FALSE(partitioner::clusterOfGpus("GeForce 256", 32e6, 1));
}

TEST_CASE("the memory of a machine") {
  CHECK(machineMemory() > 1 << 28);
  CHECK(machineMemory() <= static_cast<double>(sysconf(_SC_PHYS_PAGES)) * static_cast<double>(sysconf(_SC_PAGESIZE)));
}
