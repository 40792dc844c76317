// Options of a job: program defaults, command line, and invalid values.
#include "frontend/program/ResolvedOptions.h"
#include "frontend/program/Files.h"
#include "frontend/program/PlanDescriptions.h"
#include "frontend/program/StoredOptions.h"
#include "runtime/checkpoint/TrainingJson.h"
#include "runtime/plan/plan_generated.h"
#include "tests/unit/frontend/Support.h"

#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <unistd.h>

using namespace cleave;
using namespace cleave::test;

namespace {

std::string wrong(RunOptions options, TrainConfig config = {}) {
  return mistake([&] { resolveOptions(config, options); });
}

} // namespace

TEST_CASE("defaults are the program's") {
  const ResolvedOptions job = resolveOptions({.optimizer = Sgd{.lr = 0.5, .momentum = 0.9}, .batch = 128}, {});
  CHECK(job.batch == 128);
  CHECK(job.strategy.microbatches == 1);
  CHECK(job.strategy.mesh.ranks() == 1);
  CHECK(std::get<Sgd>(job.config.optimizer).momentum == 0.9);
}

TEST_CASE("options override them") {
  const ResolvedOptions job =
      resolveOptions({.optimizer = Sgd{.lr = 0.5, .momentum = 0.9}},
                     {.mesh = "dp=2,pp=2", .schedule = "gpipe", .microbatches = 4, .batch = 48, .seed = 7, .lr = 0.1});
  CHECK(job.batch == 48);
  CHECK(job.seed == 7);
  CHECK(job.strategy.mesh.size("pp") == 2);
  CHECK(job.strategy.schedule == "gpipe");
  CHECK(std::get<Sgd>(job.config.optimizer).lr == 0.1);
  CHECK(std::get<Sgd>(job.config.optimizer).momentum == 0.9);
  const ResolvedOptions other = resolveOptions({.optimizer = Sgd{.lr = 0.5}}, {.optimizer = "adamw"});
  CHECK(std::get<AdamW>(other.config.optimizer).lr == 0.001);
}

TEST_CASE("a batch for each rank is a global batch") {
  const TrainConfig config{.optimizer = Sgd{}, .batch = 100};
  CHECK(resolveOptions(config, {.mesh = "dp=3,tp=2,pp=2", .batchPerRank = 8}).batch == 24);
  CHECK(resolveOptions(config, {.batchPerRank = 8}).batch == 8);
  CHECK(resolveOptions(config, {.devices = 4, .strategy = "data", .batchPerRank = 8}).batch == 32);
  CHECK(resolveOptions(config, {.mesh = "dp=3", .microbatches = 2, .batch = 24, .batchPerRank = 8}).batch == 24);
  const TrainConfig perRank{.optimizer = Sgd{}, .batchPerRank = 16};
  CHECK(resolveOptions(perRank, {.mesh = "dp=2,pp=2"}).batch == 32);
  CHECK(resolveOptions(perRank, {.mesh = "dp=2", .batch = 10}).batch == 10);
  CHECK(resolveOptions(perRank, {.mesh = "dp=2", .batchPerRank = 3}).batch == 6);
  const std::string other = wrong({.mesh = "dp=3", .batch = 8, .batchPerRank = 8});
  CHECK((has(other, "--batch 8") && has(other, "--batch-per-rank 8") && has(other, "dp=3") && has(other, "24")));
  CHECK(has(wrong({.batchPerRank = 0}), "--batch-per-rank 0"));
  CHECK(has(wrong({.mesh = "dp=2", .batchPerRank = 2000000000}), "between 1 and 1073741823"));
  CHECK(has(wrong({.mesh = "dp=2"}, {.batchPerRank = -1}), "TrainConfig: batchPerRank is -1"));
  CheckpointInfo info;
  info.batch = 64;
  RunOptions options{.batchPerRank = 8};
  takeFromCheckpoint(info, options);
  CHECK(!options.batch);                                    // as with --batch, the checkpoint's does not apply
  CHECK(resolveOptions(config, {.steps = 0}).batch == 100); // the initial weights
}

TEST_CASE("what neither options nor a file decide is left to a search") {
  const TrainConfig config{.batch = 32};
  const std::string folder = std::filesystem::temp_directory_path() / ("cleave-options-" + std::to_string(getpid()));
  std::filesystem::create_directory(folder);
  const std::string cluster = folder + "/cluster.toml", file = folder + "/pins.toml";
  std::ofstream(cluster) << "name = \"c\"\n[devices.d]\nbackend = \"cpu\"\nmemory_gib = 4.0\nmemory_gb_per_s = 10.0\n"
                            "peak_tflops = { fp32 = 0.1 }\n[[nodes]]\ndevices = { d = 8 }\n"
                            "inside = { gb_per_s = 5.0, latency_us = 5.0 }\n";
  const auto left = [&](RunOptions options, const std::string &pins = "") {
    options.cluster = cluster;
    if (!pins.empty())
      std::ofstream(file) << pins, options.strategy = file;
    return resolveOptions(config, options).toSearch;
  };
  CHECK(left({})->devices == 8);
  CHECK(left({.devices = 4})->devices == 4);
  CHECK(left({.devices = 4, .strategy = "pipeline"})->pins.kind == "pipeline");
  CHECK(!left({.mesh = "dp=2"}));
  CHECK(!resolveOptions(config, {.devices = 4, .strategy = "data"}).toSearch); // without a cluster
  CHECK(left({}, "zero = 1\n")->devices == 8);
  CHECK(left({.devices = 4}, "zero = 1\n")->pins.zero == 1);
  CHECK(left({}, "mesh = { dp = 2 }\n")->devices == 2);
  CHECK(left({.mesh = "dp=4"}, "zero = 1\n")->devices == 4);
  const std::string complete = "mesh = { dp = 2 }\nschedule = { name = \"1f1b\", microbatches = 2 }\nzero = 0\n"
                               "[recompute]\n\"*\" = \"none\"\n";
  CHECK(!left({}, complete));
  CHECK(left({}, complete.substr(0, complete.find("[recompute]")))->pins.microbatches == 2);
  CHECK_THROWS(left({.mesh = "dp=4"}, complete));
  CHECK_THROWS(left({.devices = 4}, complete));
  CHECK(left({.mesh = "dp=4", .strategy = "data"})->pins.mesh->ranks() == 4); // they agree
  CHECK_THROWS(left({.mesh = "tp=4", .strategy = "data"}));
  CHECK(left({.devices = 2}, complete.substr(0, complete.find("zero")))->devices == 2);
  CHECK_THROWS(left({.batchPerRank = 4}));
  std::ofstream(file) << "zero = 1\n"; // without a cluster, too
  CHECK(resolveOptions(config, {.devices = 4, .strategy = file}).toSearch->devices == 4);
  std::ofstream(file) << "mesh = { dp = 4 }\n";
  CHECK(!resolveOptions(config, {.devices = 4, .strategy = file}).toSearch);
  std::filesystem::remove_all(folder);
}

TEST_CASE("what each command line pins, leaves at its default, or leaves open") {
  const std::string folder = std::filesystem::temp_directory_path() / ("cleave-states-" + std::to_string(getpid()));
  std::filesystem::create_directory(folder);
  const std::string cluster = folder + "/cluster.toml", file = folder + "/pins.toml", whole = folder + "/whole.toml";
  std::ofstream(cluster) << "name = \"c\"\n[devices.d]\nbackend = \"cpu\"\nmemory_gib = 4.0\nmemory_gb_per_s = 10.0\n"
                            "peak_tflops = { fp32 = 0.1 }\n[[nodes]]\ndevices = { d = 8 }\n"
                            "inside = { gb_per_s = 5.0, latency_us = 5.0 }\n";
  std::ofstream(file) << "zero = 1\nschedule = { microbatches = 2 }\n";
  std::ofstream(whole) << "mesh = { dp = 4 }\nschedule = { name = \"1f1b\", microbatches = 2 }\n"
                          "zero = 0\n[recompute]\n\"*\" = \"none\"\n";
  using passes::Purpose;
  struct Line {
    RunOptions options;
    /// A letter for mesh, schedule, microbatches, stages, recompute, sequence, zero, scatter_gather: P pinned, d
    /// default, m default unless memory forbids, O open.
    const char *planned, *trained, *evaluated;
  };
  // planned: where the plan will run is not known. trained: on this machine.
  const Line lines[] = {
      {{}, "dddddddd", "ddddmddd", "dddddddd"},
      {{.mesh = "dp=2"}, "Pddddddd", "Pdddmddd", "Pddddddd"},
      {{.mesh = "dp=2", .zero = 1}, "PdddddPd", "PdddmdPd", "PdddddPd"},
      {{.mesh = "dp=2", .recompute = "none"}, "PdddPddd", "PdddPddd", "PdddPddd"},
      {{.mesh = "pp=2", .schedule = "1f1b"}, "PPdddddd", "PPddmddd", "PPdddddd"},
      {{.mesh = "pp=2", .schedule = "auto"}, "POdddddd", "POddmddd", "PPdddddd"},
      {{.devices = 4, .strategy = "data"}, "Pddddddd", "Pdddmddd", "Pddddddd"},
      {{.devices = 4}, "OOOOOOOd", "OOOOOOOd", "Oddddddd"},
      {{.devices = 4, .strategy = "auto"}, "OOOOOOOd", "OOOOOOOd", "Oddddddd"},
      {{.devices = 4, .schedule = "auto"}, "OOOOOOOd", "OOOOOOOd", "Oddddddd"},
      {{.mesh = "dp=4", .strategy = "auto"}, "PdOdOdOd", "PdOdOdOd", "Pddddddd"},
      {{.mesh = "pp=4", .strategy = "auto", .microbatches = 2}, "POPOOddd", "POPOOddd", "PdPddddd"},
      {{.devices = 4, .strategy = file}, "OOPOOOPd", "OOPOOOPd", "OdPdddPd"},
      {{.strategy = whole}, "PPPdPdPd", "PPPdPdPd", "PPPdPdPd"},
      {{.cluster = cluster}, "OOOOOOOd", "OOOOOOOd", "Oddddddd"},
      {{.mesh = "dp=8", .cluster = cluster}, "Pdddmddd", "Pdddmddd", "Pddddddd"},
      {{.mesh = "tp=8", .strategy = "auto", .scatterGather = "never", .cluster = cluster},
       "PdOdOOdP",
       "PdOdOOdP",
       "PddddddP"},
      {{.strategy = "data", .cluster = cluster}, "OOOOOOOd", "OOOOOOOd", "Oddddddd"},
      {{.mesh = "pp=8", .schedule = "auto", .cluster = cluster}, "POddmddd", "POddmddd", "PPdddddd"},
      {{.strategy = whole, .cluster = cluster}, "PPPdPdPd", "PPPdPdPd", "PPPdPdPd"},
      {{.strategy = file, .cluster = cluster}, "OOPOOOPd", "OOPOOOPd", "OdPdddPd"},
  };
  const auto statesOf = [](const ResolvedOptions &resolved) {
    std::string states;
    for (const partitioner::DecisionRow &row : partitioner::decisionTable())
      states += "PdmO"[static_cast<size_t>(passes::stateOf(row, resolved))];
    return states;
  };
  for (const Line &line : lines) {
    INFO(line.options.mesh << " " << line.options.devices << " " << line.options.strategy << " "
                           << line.options.schedule << " " << line.options.cluster);
    CHECK(statesOf(resolveOptions({.batch = 32}, line.options)) == line.planned);
    CHECK(statesOf(resolveOptions({.batch = 32}, line.options, Purpose::Training, RunsOn::ThisMachine)) ==
          line.trained);
    CHECK(statesOf(resolveOptions({.batch = 32}, line.options, Purpose::Evaluation, RunsOn::ThisMachine)) ==
          line.evaluated);
  }
  std::filesystem::remove_all(folder);
}

TEST_CASE("mistakes name the option and the value") {
  CHECK(has(wrong({.mesh = "foo=2"}), "foo"));
  CHECK(has(wrong({.mesh = "dp=0"}), "dp"));
  CHECK(has(wrong({.mesh = "dp=two"}), "two"));
  CHECK(has(wrong({.schedule = "zigzag"}), "--schedule zigzag"));
  CHECK(has(wrong({.optimizer = "magic"}), "--optimizer magic"));
  CHECK(has(wrong({.backend = "abacus"}), "--backend abacus"));
  const std::string uneven = wrong({.microbatches = 9, .batch = 8});
  CHECK((has(uneven, "8") && has(uneven, "9")));
  CHECK(has(wrong({.microbatches = 0}), "--microbatches 0"));
  CHECK(has(wrong({.precision = "tf32"}), "--precision tf32"));
  CHECK(has(wrong({.precision = "bf16", .optLevel = "O0"}), "contradicts"));
  CHECK(has(wrong({.precision = "fp32", .optLevel = "O1"}), "contradicts"));
  CHECK(has(wrong({.optLevel = "O4"}), "--opt-level O4"));
  CHECK(has(wrong({.precision = "fp16", .lossScale = "huge"}), "--loss-scale huge"));
  CHECK(has(wrong({.precision = "int3"}), "--precision int3"));
  const std::string otherHalf = wrong({.precision = "bf16", .reduceDtype = "fp16"});
  CHECK((has(otherHalf, "--reduce-dtype fp16") && has(otherHalf, "--precision is bf16")));
  CHECK(has(wrong({.reduceDtype = "bf16"}), "--precision is fp32"));
  CHECK(has(wrong({.precision = "bf16", .reduceDtype = "half"}), "--reduce-dtype half"));
  CHECK(has(wrong({.layout = "nchwc"}), "--layout nchwc"));
  CHECK(has(wrong({.recompute = "some"}), "--recompute some"));
  CHECK(has(wrong({.zero = 2}), "--zero 2: the mesh must have dp > 1, it is dp=1"));
  CHECK(has(wrong({.mesh = "dp=2", .zero = 4}), "--zero 4: must be a whole number from 0 to 3"));
  CHECK(has(wrong({.mesh = "dp=2,tp=2", .devices = 8}), "--devices 8: --mesh dp=2,tp=2 has 4 devices"));
  CHECK(has(wrong({.devices = 4, .batchPerRank = 2}), "--batch-per-rank 2"));
  CHECK(has(wrong({.strategy = "auto"}), "--strategy auto: needs --devices"));
  CHECK(has(wrong({.strategy = "data"}), "--strategy data"));
  CHECK(has(wrong({.mesh = "dp=2", .devices = 4, .strategy = "data"}), "--mesh dp=2"));
  CHECK(has(wrong({.mesh = "tp=4", .strategy = "data"}), "--strategy data: splits 4 devices as dp=4"));
  CHECK(has(wrong({.strategy = "/no/such/file.toml"}), "/no/such/file.toml"));
  CHECK(has(wrong({.momentum = 0.5}, {.optimizer = Adam{}}), "--momentum 0.5"));
  CHECK(has(wrong({.lr = -1.0}), "--lr -1"));
  CHECK(has(wrong({.threads = 100000}), "--threads 100000"));
  CHECK(has(wrong({.target = "sm_90"}), "--target sm_90"));
  CHECK(has(mistake([] { checkBackend("cuda"); }), "CUDA"));
  CHECK(resolveOptions({}, {.backend = "cuda"}).backend == Target::Kind::Cuda); // a plan can be compiled for it
  CHECK(!resolveOptions({}, {}).toSearch);
  const ResolvedOptions searched = resolveOptions({.batch = 128}, {.microbatches = 2, .devices = 4});
  REQUIRE(searched.toSearch);
  CHECK(searched.toSearch->devices == 4);
  CHECK(searched.toSearch->pins.microbatches == 2);
  CHECK(!searched.toSearch->pins.mesh);
  CHECK(searched.cluster);
}

TEST_CASE("numbers of devices that agree may be given together") {
  CHECK(resolveOptions({}, {.mesh = "tp=8", .devices = 8}).strategy.mesh.size("tp") == 8);
  CHECK(resolveOptions({}, {.mesh = "dp=4", .devices = 4, .strategy = "data"}).strategy.mesh.size("dp") == 4);
  CHECK(resolveOptions({}, {.mesh = "dp=4", .strategy = "data"}).strategy.mesh.size("dp") == 4);
  const ResolvedOptions searched = resolveOptions({.batch = 64}, {.mesh = "tp=4", .strategy = "auto"});
  REQUIRE(searched.toSearch);
  CHECK(searched.toSearch->devices == 4);
  CHECK(searched.toSearch->pins.mesh->size("tp") == 4);
  CHECK(has(wrong({.strategy = "auto"}), "--devices N, --mesh AXES or --cluster FILE"));
}

TEST_CASE("a program's own numbers are checked as those of the command line") {
  const auto is = [](TrainConfig config, const std::string &text) {
    CHECK(has(wrong({}, config), "TrainConfig: " + text));
  };
  is({.optimizer = Sgd{.lr = -1}}, "Sgd::lr is -1, must be a number in [0, 1e+30)");
  is({.optimizer = Sgd{.momentum = 1}}, "Sgd::momentum is 1, must be a number in [0, 1)");
  is({.optimizer = Adam{.beta2 = 1}}, "Adam::beta2 is 1");
  is({.optimizer = Adam{.eps = -1e-8}}, "Adam::eps is -1e-08");
  is({.optimizer = AdamW{.lr = std::nan("")}}, "AdamW::lr is nan");
  is({.optimizer = AdamW{.weightDecay = -0.1}}, "AdamW::weightDecay is -0.1");
  is({.learningRate = CosineLr{.warmup = -3}}, "CosineLr::warmup is -3, must be a whole number from 0");
  is({.learningRate = CosineLr{.warmup = 9, .steps = 8}}, "CosineLr::warmup is 9, must be a whole number from 0 to 8");
  is({.learningRate = CosineLr{.min = -1}}, "CosineLr::min is -1");
  is({.learningRate = CosineLr{.steps = -1}}, "CosineLr::steps is -1");
  is({.learningRate = StepLr{.every = 0}}, "StepLr::every is 0, must be a whole number from 1");
  is({.learningRate = StepLr{.gamma = INFINITY}}, "StepLr::gamma is inf");
  is({.learningRate = WarmupLr{.warmup = -1}}, "WarmupLr::warmup is -1");
  is({.learningRate = WarmupLr{.warmupEpochs = -1}}, "WarmupLr::warmupEpochs is -1");
  is({.clipNorm = -1}, "clipNorm is -1");
  is({.ema = 1}, "ema is 1");
  is({.groups = {{.pattern = "*.bias", .lrScale = -1.0}}}, "the group \"*.bias\": lrScale is -1");
  is({.batch = 0}, "batch is 0, must be a whole number from 1 to 2147483647");
  is({.batch = -8}, "batch is -8");
  is({.evalBatch = -1}, "evalBatch is -1");
  is({.learningRateBatch = -1}, "learningRateBatch is -1");
  CHECK(resolveOptions({.batch = 0}, {.batch = 8}).batch == 8); // the program may leave it to the command line
  CHECK(resolveOptions({.learningRate = StepLr{.every = 0, .everyEpochs = 2}}, {}).batch == 32);
}

TEST_CASE("convolutions are channels last on CPUs and where matrix units run them, or as asked for") {
  CHECK(resolveOptions({}, {}).channelsLast);
  CHECK(resolveOptions({}, {.precision = "bf16"}).channelsLast);
  CHECK_FALSE(resolveOptions({}, {.backend = "cuda"}).channelsLast);
  CHECK(resolveOptions({}, {.backend = "cuda", .precision = "bf16"}).channelsLast);
  CHECK(resolveOptions({}, {.backend = "cuda", .precision = "tf32"}).channelsLast);
  CHECK_FALSE(resolveOptions({}, {.backend = "cuda", .precision = "bf16", .layout = "nchw"}).channelsLast);
  CHECK_FALSE(resolveOptions({}, {.layout = "nchw"}).channelsLast);
  CHECK(resolveOptions({}, {.backend = "cuda", .layout = "nhwc"}).channelsLast);
  CHECK(resolveOptions({}, {}).winograd == plan::WinogradUse::Auto);
  CHECK(resolveOptions({}, {.winograd = "never"}).winograd == plan::WinogradUse::Never);
}

TEST_CASE("gradients are reduced in f32 unless said otherwise, those of half parameters in half") {
  CHECK(resolveOptions({}, {}).precision.reduce == Precision::Type::Fp32);
  CHECK(resolveOptions({}, {.precision = "bf16"}).precision.reduce == Precision::Type::Fp32);
  CHECK(resolveOptions({}, {.precision = "bf16", .reduceDtype = "bf16"}).precision.reduce == Precision::Type::Bf16);
  CHECK(resolveOptions({}, {.optLevel = "O2", .reduceDtype = "fp16"}).precision.reduce == Precision::Type::Fp16);
  CHECK(resolveOptions({}, {.optLevel = "O3"}).precision.reduce == Precision::Type::Fp16);
  CHECK(resolveOptions({}, {.optLevel = "O3", .reduceDtype = "fp32"}).precision.reduce == Precision::Type::Fp32);
  const plan::TrainingT stored = *resolveOptions({}, {.precision = "bf16", .reduceDtype = "bf16"}).training;
  CheckpointInfo checkpoint;
  checkpoint.training = trainingJson(stored);
  RunOptions taken;
  takeFromCheckpoint(checkpoint, taken);
  CHECK(taken.precision == "bf16");
  CHECK(taken.reduceDtype == "bf16");
  RunOptions before; // a checkpoint written before --reduce-dtype existed
  checkpoint.training = R"({"precision": {"type": "fp16", "opt_level": "O3", "loss_scale": "dynamic"}})";
  takeFromCheckpoint(checkpoint, before);
  CHECK(before.reduceDtype == "fp16");
}

TEST_CASE("data has to be somewhere") {
  CHECK(has(mistake([] { dataPlace(Mnist{}, {}); }), "--data"));
  CHECK(has(mistake([] { dataPlace(Mnist{}, {.data = "/no/such/place"}); }), "/no/such/place"));
  CHECK(dataPlace(Mnist{}, {.data = "synthetic"}) == "synthetic");
  CHECK(dataPlace(SyntheticImages{}, {}) == "synthetic");
}

TEST_CASE("what plans store of data and training") {
  const plan::DataT data = dataOf(Text{.context = 32, .vocab = 100});
  CHECK(data.kind == plan::DataKind::Text);
  CHECK(data.context == 32);
  CHECK(data.fields.at(1)->name == "targets");
  CHECK(data.fields.at(1)->classes == 100);
  const plan::TrainingT training =
      trainingOf({.optimizer = Adam{.lr = 0.1}, .learningRate = CosineLr{.warmup = 10}}, {});
  CHECK(training.optimizer->kind == plan::OptimizerKind::Adam);
  CHECK(training.optimizer->beta2 == 0.999);
  CHECK(training.rate->kind == plan::RateKind::WarmupCosine);
  CHECK(training.rate->base == 0.1);
  // The fields that a checkpoint keeps.
  const auto json = nlohmann::json::parse(trainingJson(training));
  CHECK(json["optimizer"]["beta2"] == 0.999);
  CHECK(json["lr"]["kind"] == "warmup_cosine");
  CHECK(nlohmann::json::parse(dataJson(data))["fields"][1]["classes"] == 100);
}
