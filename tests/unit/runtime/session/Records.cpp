// Learning-rate schedules, metrics records, and formatted numbers.
#include "runtime/base/Counted.h"
#include "runtime/base/Error.h"
#include "runtime/checkpoint/TrainingJson.h"
#include "runtime/plan/plan_generated.h"
#include "runtime/session/LearningRate.h"
#include "runtime/session/Metrics.h"
#include "runtime/session/Progress.h"
#include "runtime/session/RankJob.h"
#include "tests/unit/runtime/session/TestPlans.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <random>

using namespace cleave;
using Catch::Matchers::Contains;

namespace {
plan::LearningRateT rateOf(const char *json) { return *parseTraining(json).rate; }
} // namespace

TEST_CASE("learning rates follow their schedules", "[session]") {
  const plan::LearningRateT constant = rateOf(R"({"optimizer":{},"lr":{"kind":"constant","base":0.1}})");
  CHECK(rateAt(constant, 1, 10) == 0.1);
  CHECK(rateAt(constant, 1000, 10) == 0.1);
  const plan::LearningRateT step = rateOf(R"({"lr":{"kind":"step","base":1,"gamma":0.5,"every":3}})");
  CHECK(rateAt(step, 3, 10) == 1);
  CHECK(rateAt(step, 4, 10) == 0.5);
  CHECK(rateAt(step, 7, 10) == 0.25);
  plan::LearningRateT epochs = step;
  epochs.warmup_epochs = 0.5, epochs.every_epochs = 2;
  resolveEpochs(epochs, 4);
  CHECK(rateAt(epochs, 1, 100) == 0.5); // of 1, in the first of two steps
  CHECK(rateAt(epochs, 8, 100) == 1);
  CHECK(rateAt(epochs, 9, 100) == 0.5);
  const plan::LearningRateT cosine = rateOf(R"({"lr":{"kind":"cosine","base":2,"steps":10,"min":1}})");
  CHECK(rateAt(cosine, 1, 99) == Approx(2));
  CHECK(rateAt(cosine, 6, 99) == Approx(1.5));
  CHECK(rateAt(cosine, 11, 99) == Approx(1));
  CHECK(rateAt(cosine, 50, 99) == Approx(1));
  const plan::LearningRateT warm = rateOf(R"({"lr":{"kind":"warmup_cosine","base":1,"warmup":4}})");
  CHECK(rateAt(warm, 1, 12) == 0.25);
  CHECK(rateAt(warm, 4, 12) == 1);
  CHECK(rateAt(warm, 5, 12) == Approx(1));
  CHECK(rateAt(warm, 9, 12) == Approx(0.5));
  CHECK(rateAt(rateOf(""), 5, 9) == 0.01);
}

TEST_CASE("what a checkpoint keeps of a training reads back", "[session]") {
  using namespace plan;
  for (uint8_t kind = 0; kind <= static_cast<uint8_t>(RateKind::MAX); ++kind) {
    TrainingT training;
    training.precision = plan::Precision::Bf16;
    training.level = 2;
    training.loss_scaling = kind == 0 ? LossScaling::None : kind == 1 ? LossScaling::Dynamic : LossScaling::Fixed;
    training.loss_scale = kind == 0 ? 0 : kind == 1 ? LossScale{}.initial : 1024;
    training.reduce = plan::Precision::Bf16;
    training.rate = std::make_unique<LearningRateT>();
    training.rate->kind = RateKind(kind);
    training.rate->base = 0.1;
    training.optimizer = std::make_unique<OptimizerT>();
    training.optimizer->kind = kind % 2 ? OptimizerKind::AdamW : OptimizerKind::Sgd;
    training.optimizer->momentum = kind % 2 ? 0 : 0.9;
    training.optimizer->beta2 = kind % 2 ? 0.999 : 0;
    training.optimizer->weight_decay = 1e-4;
    const std::string json = trainingJson(training);
    const TrainingT back = parseTraining(json);
    CHECK(trainingJson(back) == json);
    CHECK(back.precision == training.precision);
    CHECK(back.loss_scaling == training.loss_scaling);
    CHECK(back.loss_scale == training.loss_scale);
    CHECK(back.rate->kind == training.rate->kind);
    CHECK(back.optimizer->beta2 == training.optimizer->beta2);
  }
}

TEST_CASE("a checkpoint's training is refused where it is not known", "[session]") {
  CHECK_THROWS_WITH(parseTraining(R"({"lr":{"kind":"zigzag"}})"), Contains("zigzag"));
  CHECK_THROWS_WITH(parseTraining(R"({"optimizer":{"name":"lion"}})"), Contains("lion"));
  CHECK_THROWS_WITH(parseTraining(R"({"precision":{"opt_level":"O4"}})"), Contains("O4"));
  CHECK_THROWS_WITH(parseTraining("{"), Contains("checkpoint training"));
  CHECK_THROWS_WITH(parseTraining(R"({"lr":{"base":"x"}})"), Contains("checkpoint training"));
}

TEST_CASE("metrics read back exactly", "[session]") {
  std::mt19937_64 random(1);
  for (int i = 0; i < 1000; ++i) {
    const uint64_t bits = random();
    double value;
    std::memcpy(&value, &bits, 8);
    if (!std::isfinite(value))
      continue;
    const auto json = nlohmann::json::parse(toJson(StepRecord{i, 1, value, 0.1, 3, 4}));
    CHECK(json["loss"].get<double>() == value);
    CHECK(json["step"] == i);
  }
  CHECK(jsonNumber(std::numeric_limits<double>::quiet_NaN()) == "null");
  CHECK(toJson(StepRecord{3, 1, 0.5, 0.1, 1000, 2.5}) ==
        R"({"step":3,"epoch":1,"loss":0.5,"lr":0.1,"samples_per_s":1000,"step_ms":2.5,"data_wait_ms":0})");
  StepRecord onGpu{3, 1, 0.5, 0.1, 1000, 2.5};
  onGpu.hostMicroseconds = 21.5, onGpu.launchMicroseconds = 8.25;
  CHECK(toJson(onGpu) ==
        R"({"step":3,"epoch":1,"loss":0.5,"lr":0.1,"samples_per_s":1000,"step_ms":2.5,"data_wait_ms":0,)"
        R"("host_us":21.5,"launch_us":8.25})");
  CHECK(
      toJson(EpochRecord{2, 0.25, 0.875, 0.5, 0.75, 3, 0.125}) ==
      R"({"epoch":2,"eval_loss":0.25,"eval_accuracy":0.875,"train_loss":0.5,"train_accuracy":0.75,"seconds":3,"data_wait_s":0.125})");
}

TEST_CASE("the run record has the promised fields", "[session]") {
  RunRecord run;
  run.program = "a \"name\"";
  run.mesh = {{{"dp", 2}, {"tp", 1}}};
  run.peakBytes = {1, 2, 3};
  const auto json = nlohmann::json::parse(toJson(run))["run"];
  for (const char *key : {"program", "mesh", "schedule", "microbatches", "batch", "seed", "backend", "parameters",
                          "plan_hash", "peak_bytes", "compile_s"})
    CHECK(json.contains(key));
  CHECK(json["program"] == "a \"name\"");
  CHECK(json["mesh"] == nlohmann::json({{"dp", 2}, {"tp", 1}}));
  CHECK(json["peak_bytes"] == nlohmann::json({1, 2, 3}));
}

TEST_CASE("metrics files are written, appended and refused by name", "[session]") {
  test::TemporaryFolder folder;
  const std::string path = folder.path("m.jsonl");
  MetricsFile(path, false).write("{}");
  MetricsFile(path, true).write("[]");
  std::ifstream in(path);
  std::string all((std::istreambuf_iterator<char>(in)), {});
  CHECK(all == "{}\n[]\n");
  CHECK_THROWS_WITH(MetricsFile("/no/such/folder/m.jsonl", false), Contains("/no/such/folder/m.jsonl"));
  MetricsFile full("/dev/full", false);
  CHECK_THROWS_AS((full.write("{}"), full.flush()), Error);
  MetricsFile().write("nowhere");
}

TEST_CASE("numbers for people", "[session]") {
  CHECK(grouped(0) == "0");
  CHECK(grouped(999) == "999");
  CHECK(grouped(118400) == "118,400");
  CHECK(grouped(-1234567) == "-1,234,567");
  CHECK(clockTime(7.2) == "0:07");
  CHECK(clockTime(3661) == "1:01:01");
}

TEST_CASE("training drops the last partial batch", "[session]") {
  DataPosition at{1, 0};
  int steps = 0;
  while (at.epoch == 1) {
    at.sample += 8;
    at.settle(21, 8);
    ++steps;
  }
  CHECK(steps == 2);
  CHECK(at == DataPosition{2, 0});
}
