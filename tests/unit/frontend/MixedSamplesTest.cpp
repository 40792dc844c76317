// Losses and layers that combine the samples of a batch: evaluation needs whole batches, and a change of the number of
// microbatches is reported.
#include "runtime/plan/PlanFile.h"
#include "runtime/plan/plan_generated.h"
#include "tests/unit/frontend/Support.h"

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fmt/format.h>
#include <fstream>
#include <unistd.h>

using namespace cleave;
using namespace cleave::test;

namespace {

/// 16 training samples, 12 of evaluation.
struct Points : Dataset {
  std::vector<DataField> list{{"x", FieldType::F32, {6}}, {"y", FieldType::I32, {}, 4}};
  const std::vector<DataField> &fields() const override { return list; }
  int64_t samples(Split split) const override { return split == Split::Train ? 16 : 12; }
  void read(Split, int64_t index, size_t field, std::byte *to) const override {
    float x[6];
    for (int i = 0; i < 6; ++i)
      x[i] = std::sin(static_cast<float>(index * 6 + i));
    const auto label = static_cast<int32_t>(index % 4);
    field == 0 ? std::memcpy(to, x, sizeof x) : std::memcpy(to, &label, sizeof label);
  }
};

struct Net : Module {
  Linear fc{*this, "fc", 6, 4};
  BatchNorm2d norm{*this, "norm", 4};
  Conv2d window{*this, "window", 1, 4, {.kernel = 1}};
  Parameter places{*this, "places", {4, 2, 3}, init::uniform(-1, 1)};
  Parameter table{*this, "table", {5, 4}, init::uniform(-1, 1)};
  std::function<Tensor(Net &, Tensor)> body;
  explicit Net(std::function<Tensor(Net &, Tensor)> body) : body(std::move(body)) {}
  Tensor forward(Tensor x) { return body(*this, x); }
};

Tensor plain(Net &net, Tensor x) { return net.fc(x); }
Tensor normed(Net &net, Tensor x) { return net.norm(net.fc(x)); }
Tensor centred(Net &net, Tensor x) {
  Tensor y = net.fc(x);
  return y - mean(y, {0}, true);
}
Tensor pairwise(Net &net, Tensor x) {
  Tensor y = net.fc(x);
  return matmul(softmax(matmul(y, transpose(y, 0, 1))), y);
}
/// Has a row for each row of the batch, and all of them are equal.
Tensor shifted(Net &net, Tensor x) { return net.fc(x) + withSharding(tanh(full({8, 1}, 0.5)), {"", "whole"}); }
/// Multiplies the pixels of all images by the same numbers; on CPUs images are channels last.
Tensor weighted(Net &net, Tensor x) { return sum(net.window(reshape(x, {8, 1, 2, 3})) * net.places, {2, 3}); }
Tensor meant(Net &net, Tensor x) {
  return perMicrobatch([&] { return pairwise(net, x); });
}

/// A number for each sample, below 4.
Tensor numbers(Tensor x) { return cast(floor(abs(select(x, 1, 0)) * 4.0), DType::I32); }
/// Looks up rows of a table by numbers of the samples.
Tensor selected(Net &net, Tensor x) { return net.fc(x) + indexSelect(net.table, 0, numbers(x)); }
Tensor gathered(Net &net, Tensor x) {
  return net.fc(x) + gather(net.table, 0, expand(unsqueeze(numbers(x), 1), {x.size(0), 4}));
}
/// Looks up rows of other samples.
Tensor exchanged(Net &net, Tensor x) { return indexSelect(net.fc(x), 0, numbers(x)); }
Tensor noisy(Net &net, Tensor x) { return net.fc(x) + randn({1, 4}) + randn({x.size(0), 4}); }
/// Combines the noise of the samples.
Tensor meanNoise(Net &net, Tensor x) { return net.fc(x) + mean(randn({x.size(0), 4}), {0}); }
/// As many numbers as samples that are no numbers of the samples.
Tensor sharedRows(Net &net, Tensor x) { return net.fc(x) + unsqueeze(slice(cleave::rand({16}), 0, 0, x.size(0)), 1); }
/// Adds sums over samples of data and of noise.
Loss noisySum(Tensor logits, Tensor labels) {
  return {
      sum(logits) + sum(randn({labels.size(0)})), full({}, static_cast<double>(labels.size(0))), {}, labels.size(0)};
}

/// The overlap of predictions and targets over the whole batch (Milletari et al. 2016).
Loss dice(Tensor logits, Tensor labels) {
  Tensor p = softmax(logits), t = cast(eq(unsqueeze(labels, 1), unsqueeze(arange(4), 0)), DType::F32);
  Tensor overlap = sum(p * t) / (sum(p * p) + sum(t * t) + 1.0);
  return {1.0 - overlap * 2.0, full({}, 1), {}, 1};
}

TrainConfig configOf(LossFunction loss = crossEntropy) {
  return {.data = std::shared_ptr<Dataset>(std::make_shared<Points>()), .loss = std::move(loss), .batch = 8};
}

/// The lines that a plan names, "train" and "eval": the text of a location, or empty.
struct Mixes {
  std::string train, eval;
};
Mixes mixesOf(std::function<Tensor(Net &, Tensor)> body, LossFunction loss = crossEntropy, RunOptions options = {}) {
  Net net(std::move(body));
  options.code = false;
  const auto file = PlanFile::fromBytes(Trainer(net, configOf(std::move(loss))).plan(options), "test");
  const plan::Plan &plan = file->plan();
  return {plan.strings()->Get(plan.train_mixes())->str(), plan.strings()->Get(plan.eval_mixes())->str()};
}

} // namespace

TEST_CASE("a plan says where samples are combined") {
  const Mixes none = mixesOf(plain), norm = mixesOf(normed), mean = mixesOf(centred), pairs = mixesOf(pairwise),
              said = mixesOf(meant), loss = mixesOf(plain, dice), equal = mixesOf(shifted), pixels = mixesOf(weighted);
  CHECK(none.train + none.eval == "");
  CHECK(equal.train + equal.eval == "");
  CHECK(pixels.train + pixels.eval == "");
  CHECK(norm.train + norm.eval ==
        ""); // batch statistics of a microbatch are documented; evaluation uses the running ones
  CHECK(has(mean.train, "MixedSamplesTest.cpp:"));
  CHECK(mean.train == mean.eval);
  CHECK(has(pairs.train, "MixedSamplesTest.cpp:"));
  CHECK(said.train == "");
  CHECK(has(said.eval, "MixedSamplesTest.cpp:")); // an incomplete batch would change the result all the same
  CHECK(has(loss.eval, "MixedSamplesTest.cpp:"));
  for (const auto &body : {selected, gathered, noisy}) {
    const Mixes found = mixesOf(body);
    CHECK(found.train + found.eval == "");
  }
  for (const auto &body : {exchanged, meanNoise, sharedRows})
    CHECK(has(mixesOf(body).eval, "MixedSamplesTest.cpp:"));
  const Mixes sums = mixesOf(plain, noisySum);
  CHECK(sums.train + sums.eval == "");
  for (const char *mesh : {"dp=2", "tp=2", "dp=2,tp=2"})
    CHECK(mixesOf(centred, crossEntropy, {.mesh = mesh, .microbatches = 2}).eval == mean.eval);
}

TEST_CASE("ranks look up the rows of their own samples") {
  for (const auto &body : {selected, gathered}) {
    Net net(body);
    const auto file = PlanFile::fromBytes(Trainer(net, configOf()).plan({.mesh = "dp=4", .code = false}), "test");
    std::vector<int64_t> counts; // of indices
    for (const plan::Segment *segment : *file->plan().programs()->Get(0)->segments())
      for (const plan::Step *step : *segment->steps()) {
        if (const plan::Gather *lookup = step->op_as_Gather())
          counts.push_back(lookup->count());
        if (const plan::ScatterAdd *sum = step->op_as_ScatterAdd())
          counts.push_back(sum->count());
      }
    CHECK(counts == std::vector<int64_t>{2, 2, 2}); // training, its gradient, evaluation
  }
}

TEST_CASE("evaluation that combines samples needs whole batches") {
  const std::string folder = std::filesystem::temp_directory_path() / fmt::format("cleave-mixed-{}", getpid());
  std::filesystem::remove_all(folder);
  Net net(plain);
  Trainer trainer(net, configOf(dice));
  const RunOptions train{.steps = 2, .checkpoint = folder, .quiet = true};
  const std::string message = mistake([&] { trainer.train(train); });
  CHECK(has(message, "MixedSamplesTest.cpp:"));
  CHECK(has(message, "a batch of 8 does not divide the 12 samples of the evaluation split"));
  CHECK(has(message, "--eval-batch 6"));
  CHECK(!std::filesystem::exists(folder + "/manifest.json"));
  RunOptions whole = train;
  whole.evalBatch = 12;
  trainer.train(whole);
  const Evaluation stored = trainer.evaluate({.checkpoint = folder}); // the checkpoint has the batch of evaluation
  const Evaluation again = trainer.evaluate({.mesh = "dp=2", .batch = 12, .checkpoint = folder});
  CHECK(again.loss == Approx(stored.loss).epsilon(1e-5));
  CHECK(has(mistake([&] { trainer.evaluate({.batch = 8, .checkpoint = folder}); }), "--batch 6"));
  std::filesystem::remove_all(folder);
}

TEST_CASE("predictions that combine samples need whole batches") {
  const std::string folder = std::filesystem::temp_directory_path() / fmt::format("cleave-mixed-predict-{}", getpid());
  std::filesystem::remove_all(folder);
  Net net(centred);
  TrainConfig config = configOf();
  config.evalBatch = 12; // not of predictions
  Trainer trainer(net, config);
  trainer.train({.steps = 1, .checkpoint = folder, .quiet = true});
  const auto predicted = [&](int64_t batch) {
    return trainer.predictor({.batch = batch, .checkpoint = folder})(Points(), Split::Eval).size();
  };
  const std::string message = mistake([&] { predicted(8); });
  CHECK(has(message, "MixedSamplesTest.cpp:"));
  CHECK(has(message, "a batch of 8 does not divide the 12 samples (the nearest that does: --batch 6)"));
  CHECK(predicted(6) == 12 * 4);
  std::filesystem::remove_all(folder);
}

TEST_CASE("evaluation may have another batch than training") {
  const std::string folder = std::filesystem::temp_directory_path() / fmt::format("cleave-evalbatch-{}", getpid());
  std::filesystem::remove_all(folder);
  const std::string metrics = folder + ".jsonl";
  Net net(normed);
  TrainConfig config = configOf();
  config.evalBatch = 6;
  Trainer trainer(net, config);
  trainer.train(
      {.mesh = "dp=2,pp=2", .microbatches = 2, .steps = 4, .metrics = metrics, .checkpoint = folder, .quiet = true});
  const Evaluation six = trainer.evaluate({.checkpoint = folder});
  std::ifstream in(metrics);
  std::string line, last;
  while (std::getline(in, line))
    last = has(line, "eval_loss") ? line : last;
  CHECK(std::stod(last.substr(last.find("eval_loss") + 11)) == Approx(six.loss).epsilon(1e-5)); // uneven rows over dp
  for (const int64_t batch : {4, 5, 12})
    CHECK(trainer.evaluate({.batch = batch, .checkpoint = folder}).loss == Approx(six.loss).epsilon(1e-5));
  CHECK(has(mistake([&] { trainer.plan({.microbatches = 4, .evalBatch = 6}); }),
            "--eval-batch 6 --microbatches 4: the batch must be a multiple of the microbatches"));
  std::filesystem::remove(metrics);
  std::filesystem::remove_all(folder);
}
