// A loss of several terms is the sum of their means, whatever each term ignores, under any split.
#include "tests/unit/frontend/Support.h"

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fmt/format.h>
#include <fstream>
#include <sstream>
#include <unistd.h>

using namespace cleave;
using namespace cleave::test;

namespace {

/// Two targets: a class, which every third sample lacks, and two numbers, of which every sample lacks one or none.
struct TwoTargets : Dataset {
  std::vector<DataField> list{
      {"x", FieldType::F32, {4}}, {"class", FieldType::I32, {}, 3}, {"goal", FieldType::F32, {2}}};
  const std::vector<DataField> &fields() const override { return list; }
  int64_t samples(Split split) const override { return split == Split::Train ? 24 : 10; }
  void read(Split split, int64_t index, size_t field, std::byte *to) const override {
    float x[4], goal[2];
    for (int i = 0; i < 4; ++i)
      x[i] = std::sin(static_cast<float>(index * 4 + i + (split == Split::Eval ? 1000 : 0)));
    goal[0] = index % 4 == 1 ? std::nanf("") : x[0] + x[1];
    goal[1] = index % 2 == 1 ? std::nanf("") : x[2] - x[3];
    const int32_t label = index % 3 == 2 ? -1 : static_cast<int32_t>(index % 3);
    if (field == 0)
      std::memcpy(to, x, sizeof x);
    else if (field == 1)
      std::memcpy(to, &label, sizeof label);
    else
      std::memcpy(to, goal, sizeof goal);
  }
};

/// The outputs share no parameter, so each loss alone trains its own part as the sum of both does.
struct TwoHeads : ModuleOf<std::pair<Tensor, Tensor>> {
  Linear classes{*this, "classes", 4, 3}, numbers{*this, "numbers", 4, 2};
  std::pair<Tensor, Tensor> forward(Tensor x) override { return {classes(x), numbers(x)}; }
};

using Tensors = std::span<const Tensor>;
Loss classLoss(Tensors p, Tensors t) { return weightedSum({{crossEntropy(p[0], t[0]), 2.0}}); }
Loss numberLoss(Tensors p, Tensors t) { return weightedSum({{mseLoss(p[1], t[1]), 0.5}}); }
Loss bothLosses(Tensors p, Tensors t) {
  return weightedSum({{crossEntropy(p[0], t[0]), 2.0}, {mseLoss(p[1], t[1]), 0.5}});
}

TrainConfig configOf(LossFunction loss) {
  return {.data = std::shared_ptr<Dataset>(std::make_shared<TwoTargets>()),
          .loss = std::move(loss),
          .optimizer = Sgd{.lr = 0.3, .momentum = 0.5},
          .batch = 8,
          .targets = 2};
}

struct Run {
  std::vector<double> losses; // of training
  Evaluation evaluated;
};

Run run(LossFunction loss, RunOptions options) {
  const std::string folder = std::filesystem::temp_directory_path() / fmt::format("cleave-terms-{}", getpid());
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  options.steps = 5;
  options.quiet = true;
  options.metrics = folder + "/metrics.jsonl";
  options.checkpoint = folder + "/checkpoint";
  TwoHeads model;
  Trainer trainer(model, configOf(loss));
  trainer.train(options);
  Run result;
  std::ifstream in(options.metrics);
  for (std::string line; std::getline(in, line);)
    if (const size_t at = line.find("\"loss\":"); at != std::string::npos && has(line, "\"step\""))
      result.losses.push_back(std::stod(line.substr(at + 7)));
  result.evaluated = trainer.evaluate({.checkpoint = options.checkpoint});
  std::filesystem::remove_all(folder);
  return result;
}

} // namespace

TEST_CASE("training minimises the weighted sum of means, whatever each loss ignores") {
  const Run classes = run(classLoss, {}), numbers = run(numberLoss, {});
  for (const RunOptions &options :
       {RunOptions{}, RunOptions{.microbatches = 4}, RunOptions{.mesh = "dp=2", .microbatches = 2},
        RunOptions{.mesh = "pp=2", .microbatches = 4},
        RunOptions{.mesh = "dp=2,pp=2", .schedule = "zb-h1", .microbatches = 2}, RunOptions{.mesh = "dp=3", .zero = 2},
        RunOptions{.mesh = "tp=2"}}) {
    INFO(options.mesh << " " << options.microbatches.value_or(1));
    const Run both = run(bothLosses, options);
    REQUIRE(both.losses.size() == classes.losses.size());
    for (size_t i = 0; i < both.losses.size(); ++i)
      CHECK(both.losses[i] == Approx(classes.losses[i] + numbers.losses[i]).epsilon(1e-5));
    CHECK(both.evaluated.loss == Approx(classes.evaluated.loss + numbers.evaluated.loss).epsilon(1e-5));
    CHECK(both.evaluated.accuracy == Approx(classes.evaluated.accuracy).epsilon(1e-6));
  }
}

TEST_CASE("a sum over the batch does not depend on the split or the number of microbatches") {
  const auto sums = [](Tensors p, Tensors t) {
    return weightedSum(
        {{crossEntropy(p[0], t[0], {.reduction = Reduction::Sum}), 0.1}, {mseLoss(p[1], t[1], Reduction::Sum), 0.05}});
  };
  const Run whole = run(sums, {});
  for (const RunOptions &options :
       {RunOptions{.microbatches = 4}, RunOptions{.mesh = "dp=2", .microbatches = 2}, RunOptions{.mesh = "tp=2"},
        RunOptions{.mesh = "pp=2", .microbatches = 4}, RunOptions{.mesh = "dp=3", .zero = 2}}) {
    INFO(options.mesh << " " << options.microbatches.value_or(1));
    const Run split = run(sums, options);
    REQUIRE(split.losses.size() == whole.losses.size());
    for (size_t i = 0; i < split.losses.size(); ++i)
      CHECK(split.losses[i] == Approx(whole.losses[i]).epsilon(1e-5));
    CHECK(split.evaluated.loss == Approx(whole.evaluated.loss).epsilon(1e-5));
  }
  // 10 samples in batches of 8: a sum over 8 samples on average.
  const auto ones = [](Tensors p, Tensors) { return mseLoss(0 * p[1], full(p[1].shape(), 1), Reduction::Sum); };
  CHECK(run(ones, {}).evaluated.loss == Approx(16));
  CHECK(run(ones, {.microbatches = 4}).evaluated.loss == Approx(16));
}

TEST_CASE("plans of a loss with several terms equal the graph") {
  TwoHeads model;
  for (const char *mesh : {"dp=1", "dp=2", "tp=2", "pp=2", "dp=2,tp=2,pp=2"})
    for (const char *schedule : {"gpipe", "1f1b", "zb-h1"}) {
      INFO(mesh << " " << schedule);
      CHECK(Trainer(model, configOf(bothLosses))
                .check({.mesh = mesh, .schedule = schedule, .microbatches = 4, .steps = 3})
                .difference == "");
    }
  CHECK(Trainer(model, configOf(bothLosses)).check({.mesh = "dp=2", .steps = 2, .precision = "bf16"}).difference == "");
}

TEST_CASE("losses with the same weight are one term") {
  TwoHeads model;
  const auto terms = [&](LossFunction loss) {
    return count(forwardPart(traced(model, configOf(std::move(loss)))), "cleave.kind = \"weight\"");
  };
  CHECK(terms(bothLosses) == 2);
  CHECK(terms([](Tensors p, Tensors t) {
          return weightedSum({{crossEntropy(p[0], t[0]), 1.0}, {crossEntropy(p[0] * 2.0, t[0]), 0.4}});
        }) == 1);
  CHECK(terms([](Tensors p, Tensors t) {
          return weightedSum({{mseLoss(p[1], t[1]), 1.0}, {mseLoss(p[1] + 1.0, t[1]), 0.4}, {bothLosses(p, t), 0.1}});
        }) == 2);
  CHECK(terms([](Tensors p, Tensors t) { // other labels are ignored
          return weightedSum({{crossEntropy(p[0], t[0]), 1.0}, {crossEntropy(p[0], t[0], {.ignoreIndex = 1}), 0.4}});
        }) == 2);
}

TEST_CASE("a weight of several must depend on the data alone") {
  TwoHeads model;
  const std::string message = mistake([&] {
    traced(model, configOf([](Tensors p, Tensors t) {
             const Loss odd{sum(p[1]), sum(sigmoid(p[1])), {}, 1};
             return weightedSum({{crossEntropy(p[0], t[0]), 1.0}, {odd, 1.0}});
           }));
  });
  CHECK(has(message, "rule weightedSum C3"));
  CHECK(has(message, "numbers."));
  CHECK(has(message, "LossTermsTest.cpp:"));
}
