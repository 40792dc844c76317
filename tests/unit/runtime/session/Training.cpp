// Whole sessions on a hand-written plan: every mesh gives the same training, a resumed run continues, evaluation covers
// every sample.
#include "runtime/base/Error.h"
#include "runtime/checkpoint/Manifest.h"
#include "runtime/plan/check/Check.h"
#include "runtime/plan/summary/PlanSummary.h"
#include "runtime/session/LearningRate.h"
#include "runtime/session/Session.h"
#include "tests/unit/runtime/session/TestPlans.h"

#include <catch2/catch.hpp>
#include <fstream>
#include <nlohmann/json.hpp>

using namespace cleave;
using Catch::Matchers::Contains;

namespace {

struct Curve {
  std::vector<double> loss;
  std::vector<nlohmann::json> epochs;
  nlohmann::json run;
  TrainResult result;
};

Curve train(const test::LinearSpec &spec, RunOptions options, const std::string &metrics, int64_t samples = 21) {
  const auto file = test::seal(test::linearPlan(spec));
  const test::CountingData data(spec.rows, spec.columns, samples, 13);
  options.metrics = metrics;
  options.device = "reference";
  options.quiet = true;
  Curve curve;
  curve.result = runTraining(file, options, &data);
  std::ifstream in(metrics);
  for (std::string line; std::getline(in, line);) {
    const auto json = nlohmann::json::parse(line);
    if (json.contains("run"))
      curve.run = json["run"];
    else if (json.contains("step"))
      curve.loss.push_back(json["loss"]);
    else
      curve.epochs.push_back(json);
  }
  return curve;
}

} // namespace

TEST_CASE("hand-made plans pass the checker", "[session]") {
  for (const auto &[dp, tp] : {std::pair(1u, 1u), {2u, 1u}, {3u, 2u}})
    CHECK(checkPlan(test::seal(test::linearPlan({.dp = dp, .tp = tp}))->plan()) == std::vector<std::string>{});
}

TEST_CASE("any mesh trains like one rank", "[session]") {
  test::TemporaryFolder folder;
  RunOptions options;
  options.steps = 7;
  const Curve one = train({}, options, folder.path("1"));
  REQUIRE(one.loss.size() == 7);
  CHECK(one.loss.front() != one.loss.back());
  CHECK(one.epochs.size() == 3); // an epoch of 21 samples has two batches of 8
  CHECK(one.run["mesh"]["dp"] == 1);
  CHECK(one.result.steps == 7);
  for (const auto &[dp, tp] : {std::pair(2u, 1u), {3u, 1u}, {1u, 2u}, {2u, 3u}}) {
    const Curve many = train({.dp = dp, .tp = tp}, options, folder.path("n"));
    REQUIRE(many.loss.size() == 7);
    CHECK(many.run["peak_bytes"].size() == dp * tp);
    for (size_t i = 0; i < 7; ++i)
      CHECK(many.loss[i] == Approx(one.loss[i]).epsilon(1e-4));
    for (size_t i = 0; i < 3; ++i)
      CHECK(many.epochs[i]["eval_loss"].get<double>() ==
            Approx(one.epochs[i]["eval_loss"].get<double>()).epsilon(1e-4));
  }
}

TEST_CASE("a resumed run continues bit for bit", "[session]") {
  test::TemporaryFolder folder;
  const test::LinearSpec spec{.dp = 2, .tp = 2};
  RunOptions options;
  options.steps = 9;
  const Curve whole = train(spec, options, folder.path("whole"));
  options.checkpoint = folder.path("ck");
  options.steps = 5;
  const Curve head = train(spec, options, folder.path("head"));
  options.steps = 9;
  options.resume = true;
  const Curve tail = train(spec, options, folder.path("tail"));
  CHECK(std::vector(whole.loss.begin(), whole.loss.begin() + 5) == head.loss);
  CHECK(std::vector(whole.loss.begin() + 5, whole.loss.end()) == tail.loss);
  // The same checkpoint in another mesh; it is at step 9 already, so no step remains.
  const Curve none = train({.dp = 3, .tp = 1}, options, folder.path("none"));
  CHECK(none.loss.empty());
  options.steps = 11;
  CHECK(train({.dp = 3, .tp = 1}, options, folder.path("more")).loss.size() == 2);
}

TEST_CASE("a run goes on with other data only if that is said", "[session]") {
  test::TemporaryFolder folder;
  RunOptions options;
  options.checkpoint = folder.path("ck");
  options.keep = 9;
  options.steps = 7; // an epoch of 21 samples has two: in the middle of the fourth
  train({}, options, folder.path("first"));
  const CheckpointInfo info = readCheckpointInfo(folder.path("ck"));
  CHECK((info.epoch == 4 && info.position == 8));
  CHECK(nlohmann::json::parse(info.dataState)["train"]["samples"] == 21);
  options.steps = 11;
  options.resume = true;
  CHECK_THROWS_WITH(train({}, options, "", 32),
                    Contains("trained on other data: training samples: 32 now, 21 before") && Contains("--new-data"));
  options.newData = true;
  const auto epochs = [&](const std::string &name, int64_t samples) { // of the steps
    train({}, options, folder.path(name), samples);
    std::vector<int64_t> list;
    std::ifstream in(folder.path(name));
    for (std::string line; std::getline(in, line);)
      if (const auto json = nlohmann::json::parse(line); json.contains("step"))
        list.push_back(json["epoch"]);
    return list;
  };
  options.atStep = 7;
  CHECK(epochs("same", 21) == std::vector<int64_t>{4, 5, 5, 6}); // the same data: nothing is left out
  CHECK(epochs("other", 32) == std::vector<int64_t>{5, 5, 5, 5});
  options.atStep = 6; // at the end of an epoch
  CHECK(epochs("more", 32) == std::vector<int64_t>{4, 4, 4, 4, 5});
  options = {};
  options.newData = true;
  CHECK_THROWS_WITH(train({}, options, ""), Contains("--new-data: needs --resume"));
}

TEST_CASE("epochs count from the start of training", "[session]") {
  test::TemporaryFolder folder;
  RunOptions options;
  CHECK(train({}, options, folder.path("a")).loss.size() == 2); // neither steps nor epochs: one epoch
  options.epochs = 3;
  CHECK(train({}, options, folder.path("b")).loss.size() == 6);
  options.checkpoint = folder.path("ck");
  options.epochs = 2;
  CHECK(train({}, options, folder.path("c")).loss.size() == 4);
  options.epochs = 3;
  options.resume = true;
  CHECK(train({}, options, folder.path("d")).loss.size() == 2);
}

TEST_CASE("evaluation reads a checkpoint", "[session]") {
  test::TemporaryFolder folder;
  RunOptions options;
  options.checkpoint = folder.path("ck");
  options.epochs = 1;
  const Curve curve = train({}, options, folder.path("m"));
  const test::CountingData data(6, 5, 21, 13);
  RunOptions eval;
  eval.checkpoint = folder.path("ck");
  eval.device = "reference";
  eval.json = true;
  const EvalResult result = runEval(test::seal(test::linearPlan({.dp = 2})), eval, &data);
  CHECK(result.samples == 13);
  CHECK(result.loss == Approx(curve.epochs.at(0)["eval_loss"].get<double>()).epsilon(1e-4));
  eval.checkpoint = "/no/such/ck";
  CHECK_THROWS_WITH(runEval(test::seal(test::linearPlan({})), eval, &data), Contains("/no/such/ck"));
}

namespace {

/// The linear plan with another learning rate schedule.
std::shared_ptr<const PlanFile> withRate(const test::LinearSpec &spec, const plan::LearningRateT &rate) {
  plan::PlanT plan = test::linearPlan(spec);
  plan.training->rate = std::make_unique<plan::LearningRateT>(rate);
  return test::seal(plan);
}

/// Runs a training that fails, and returns the status and the message.
std::pair<Status, std::string> failureOf(const std::shared_ptr<const PlanFile> &plan, const RunOptions &options) {
  const test::CountingData data(6, 5, 21, 13);
  try {
    runTraining(plan, options, &data);
  } catch (const Error &error) {
    return {error.status, error.what()};
  }
  return {Status::Success, ""};
}

std::vector<double> ratesOf(const std::shared_ptr<const PlanFile> &plan, RunOptions options,
                            const std::string &metrics) {
  const test::CountingData data(6, 5, 21, 13);
  options.metrics = metrics;
  runTraining(plan, options, &data);
  std::vector<double> rates;
  std::ifstream in(metrics);
  for (std::string line; std::getline(in, line);)
    if (const auto json = nlohmann::json::parse(line); json.contains("step"))
      rates.push_back(json["lr"]);
  return rates;
}

} // namespace

TEST_CASE("a loss that is not finite ends training, and the last good checkpoint stays", "[session]") {
  test::TemporaryFolder folder;
  plan::LearningRateT fast; // diverges from step 5 on
  fast.kind = plan::RateKind::Step;
  fast.base = 1e-3;
  fast.every = 4;
  fast.gamma = 1e41;
  RunOptions options;
  options.steps = 12;
  options.device = "reference";
  options.quiet = true;
  for (const auto &[dp, tp] : {std::pair(1u, 1u), {2u, 2u}}) {
    const test::LinearSpec spec{.dp = dp, .tp = tp};
    options.checkpoint = folder.path("ck" + std::to_string(dp));
    options.findNan = dp == 2;
    const auto [status, message] = failureOf(withRate(spec, fast), options);
    CHECK(status == Status::Environment);
    CHECK_THAT(message, Contains("step ") && Contains("checkpoint of step 4") && Contains("--keep-going"));
    CHECK(readManifest(options.checkpoint).info.step == 4);
    if (options.findNan)
      CHECK_THAT(message, Contains("was produced by"));
  }
  options.checkpoint.clear();
  options.findNan = false;
  CHECK_THAT(failureOf(withRate({}, fast), options).second, Contains("--find-nan"));
  options.keepGoing = true;
  CHECK(failureOf(withRate({}, fast), options).second == "");
}

TEST_CASE("a cosine that is as long as the run keeps its length when resumed", "[session]") {
  test::TemporaryFolder folder;
  plan::LearningRateT cosine;
  cosine.kind = plan::RateKind::Cosine;
  cosine.base = 1e-4;
  const auto plan = withRate({}, cosine);
  RunOptions options;
  options.device = "reference";
  options.quiet = true;
  options.steps = 8;
  options.checkpoint = folder.path("ck");
  options.keep = 9;
  const std::vector<double> first = ratesOf(plan, options, folder.path("first"));
  REQUIRE(first.size() == 8);
  options.steps = 12;
  options.resume = true;
  CHECK_THAT(failureOf(plan, options).second, // after a curve that has ended, nothing would be trained
             Contains("ends with rate 0 after step 8") && Contains("steps 9 to 12") &&
                 Contains("CosineLr::steps = 12"));
  CHECK(failureOf(plan, options).first == Status::User);
  options.atStep = 6;
  const std::vector<double> more = ratesOf(plan, options, folder.path("more"));
  REQUIRE(more.size() == 6);
  for (size_t i = 0; i < more.size(); ++i) // over 12 steps the rates would be higher
    CHECK(more[i] == Approx(i < 2 ? first[6 + i] : 0).margin(1e-12));
  CHECK(nlohmann::json::parse(readManifest(folder.path("ck")).info.training)["lr"]["steps"] == 8);
}

TEST_CASE("only schedules that reach rate 0 end", "[session]") {
  plan::LearningRateT rate;
  rate.base = 0.1;
  rate.steps = 100;
  for (const auto kind : {plan::RateKind::Constant, plan::RateKind::Step}) {
    rate.kind = kind;
    CHECK_FALSE(endOfSchedule(rate));
  }
  for (const auto kind : {plan::RateKind::Cosine, plan::RateKind::WarmupCosine}) {
    rate.kind = kind;
    CHECK(endOfSchedule(rate) == 100);
    CHECK(rateAt(rate, 100, 100) > 0);
    rate.min = 0.01;
    CHECK_FALSE(endOfSchedule(rate));
    rate.min = rate.base;
    CHECK_FALSE(endOfSchedule(rate));
    rate.min = 0;
  }
  rate.warmup = 100; // the cosine has no step
  CHECK(endOfSchedule(rate) == 100);
  rate.warmup = 101; // beyond the end
  CHECK_FALSE(endOfSchedule(rate));
  rate.warmup = 10;
  rate.base = 0; // asked for
  CHECK_FALSE(endOfSchedule(rate));
}

TEST_CASE("checkpoints within an epoch", "[session]") {
  test::TemporaryFolder folder;
  const test::LinearSpec spec{.dp = 2, .tp = 2}; // an epoch has two steps
  RunOptions options;
  options.steps = 9;
  const Curve whole = train(spec, options, folder.path("whole"));
  options.checkpoint = folder.path("ck");
  options.checkpointEvery = "3";
  options.keep = 20;
  train(spec, options, folder.path("m"));
  const Manifest last = readManifest(folder.path("ck"));
  std::vector<int64_t> steps{last.info.step};
  for (const KeptCheckpoint &kept : last.earlier)
    steps.insert(steps.begin(), kept.step);
  CHECK(steps == std::vector<int64_t>{2, 3, 4, 6, 8, 9});
  const CheckpointInfo third = readCheckpointInfo(folder.path("ck"), 3);
  CHECK(third.epoch == 2);
  CHECK(third.position == 8);
  options.resume = true;
  options.atStep = 3;
  CHECK(train(spec, options, folder.path("rest")).loss == std::vector(whole.loss.begin() + 3, whole.loss.end()));
  options.checkpointEvery = "1"; // always due
  options.atStep = 2;
  train({.dp = 1, .tp = 3}, options, folder.path("rest"));
  CHECK(readManifest(folder.path("ck")).generation == 6 + 4 + 7);
  options = {};
  options.checkpointEvery = "3";
  CHECK_THROWS_WITH(train(spec, options, ""), Contains("--checkpoint-every: needs --checkpoint"));
}

TEST_CASE("sessions refuse options that break a rule", "[session]") {
  test::TemporaryFolder folder;
  RunOptions options;
  options.resume = true;
  CHECK_THROWS_WITH(train({}, options, ""), Contains("--checkpoint"));
  options.checkpoint = "/no/such/ck";
  CHECK_THROWS_WITH(train({}, options, ""), Contains("/no/such/ck"));
  options = {};
  options.steps = options.epochs = 2;
  CHECK_THROWS_WITH(train({}, options, ""), Contains("give one"));
  options = {};
  CHECK_THROWS_WITH(train({.batch = 64}, options, ""), Contains("64") && Contains("21"));
  CHECK_THROWS_WITH(train({}, options, "/no/such/folder/m"), Contains("/no/such/folder/m"));
  options.checkpoint = folder.path("ck");
  train({}, options, folder.path("m"));
  options.resume = true;
  CHECK_THROWS_WITH(train({.seed = 4}, options, ""), Contains("seed 3") && Contains("seed 4"));
}

TEST_CASE("synthetic data stands in for a program's own", "[session]") {
  RunOptions options;
  options.data = "synthetic";
  options.steps = 3;
  options.quiet = true;
  options.device = "reference";
  CHECK(runTraining(test::seal(test::linearPlan({.dp = 2})), options).steps == 3);
}

TEST_CASE("a report tells mesh, split and communication", "[session]") {
  const auto file = test::seal(test::linearPlan({.dp = 2, .tp = 3}));
  const PlanSummary report = summaryOf(*file);
  CHECK(report.ranks == 6);
  CHECK(report.parameters == 30);
  bool found = false;
  for (const auto &tensor : report.tensors)
    if (tensor.name == "fc.weight") {
      found = true;
      CHECK(tensor.sharding == "[6/tp, 5]");
    }
  CHECK(found);
  const auto json = nlohmann::json::parse(toJson(report));
  for (const char *key : {"mesh", "ranks", "schedule", "microbatches", "stages", "tensors", "collectives", "messages",
                          "peak_bytes", "lower_bound_bytes", "programs", "predicted", "plan_hash"})
    CHECK(json.contains(key));
  CHECK(json["mesh"]["tp"] == 3);
  CHECK(json["predicted"].is_null());
  uint64_t bytes = 0;
  for (const auto &entry : report.collectives)
    if (entry.axis == "dp")
      bytes += entry.bytes;
  CHECK(bytes == (2 * 5 + 1) * 4); // the gradient of the two rows of a rank, and the weight
}
