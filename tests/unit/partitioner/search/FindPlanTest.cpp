// From candidates to plans of the whole model: what is tried, taken, excluded and recorded, without a compiler.
#include "partitioner/search/FindPlan.h"
#include "Fakes.h"
#include "partitioner/search/FindSchedule.h"
#include "partitioner/search/FoundDecisions.h"
#include "runtime/base/Error.h"

#include <catch2/catch.hpp>

#include <functional>

using namespace cleave;
using namespace cleave::partitioner;
using namespace cleave::partitioner::test;

namespace {

/// Plans that take what `seconds` says; 0: they do not fit.
struct AnsweredTrials : PlanTrials {
  explicit AnsweredTrials(std::function<double(const Candidate &)> seconds) : seconds(std::move(seconds)) {}
  std::vector<TriedPlan> tried(std::span<const Candidate> candidates, const Stops &stops) override {
    std::vector<TriedPlan> plans;
    for (const Candidate &one : candidates) {
      throwIfStopped(stops);
      asked.push_back(one);
      TriedPlan &plan = plans.emplace_back();
      plan.strategy.microbatches = one.group.microbatches;
      plan.step = seconds(one);
      if (plan.step == 0)
        plan.problem = "too large: plan " + std::to_string(asked.size());
    }
    return plans;
  }
  std::function<double(const Candidate &)> seconds;
  std::vector<Candidate> asked;
};

struct Asked {
  const Formulas formulas{5}; // with more than four finalists
  Measured measured{formulas, 1e9};
  SearchInput input = inputOf(8, 48, measured);
};

} // namespace

TEST_CASE("the fastest of the plans that are tried is taken") {
  Asked asked;
  int turn = 0;
  AnsweredTrials trials([&](const Candidate &one) { return one.estimate.seconds * (++turn == 3 ? 0.6 : 0.9); });
  const FoundPlan found = findPlan(asked.input, trials);
  REQUIRE(trials.asked.size() >= 4);
  CHECK(found.plan.step == trials.asked[2].estimate.seconds * 0.6);
  CHECK(found.plan.strategy.microbatches == trials.asked[2].group.microbatches);
  CHECK(found.record.step == found.plan.step);
  CHECK(found.record.estimate == trials.asked[2].estimate.seconds);
  CHECK(found.record.compiled == trials.asked.size());
  CHECK(found.record.total == uint64_t(found.outcome.counts.total));
  CHECK(found.record.lower <= found.record.step);
  CHECK(!found.record.stopped_early);
}

TEST_CASE("trials go on while estimates promise more, as wrong as one of them was") {
  Asked asked;
  int turn = 0;
  AnsweredTrials trials([&](const Candidate &one) { return ++turn == 3 ? 100 : one.estimate.seconds * 0.9; });
  const FoundPlan found = findPlan(asked.input, trials);
  CHECK(found.plan.step == 100);
  CHECK(trials.asked.size() > 4);
  CHECK(trials.asked.size() <= 12);
}

TEST_CASE("a plan at the bound ends the trials") {
  Asked asked;
  AnsweredTrials trials([](const Candidate &one) { return one.estimate.seconds; });
  const FoundPlan found = findPlan(asked.input, trials);
  CHECK(trials.asked.size() == 2); // which are made at the same time
  CHECK(found.plan.step <= 1.01 * found.record.lower);
}

TEST_CASE("plans that do not fit are excluded, and the search begins anew") {
  Asked asked;
  size_t lacking = GENERATE(1, 7, 8, 20), turn = 0;
  AnsweredTrials trials([&](const Candidate &one) { return ++turn > lacking ? one.estimate.seconds : 0; });
  const FoundPlan found = findPlan(asked.input, trials);
  REQUIRE(found.plan.step > 0);
  CHECK(found.record.compiled > lacking);
  std::set<PlanRow> rows;
  for (const Candidate &one : trials.asked)
    CHECK(rows.insert(rowOf(one.group, one.schedule)).second); // none is tried twice
  CHECK(asked.input.excluded.size() >= lacking);
  CHECK(found.record.lower <= found.record.step);
}

TEST_CASE("a space without a plan that fits tells the last problem") {
  Asked asked;
  asked.input.space.asked.pins.mesh = parseMesh("dp=8");
  asked.input.space.asked.pins.zero = 0;
  AnsweredTrials trials([](const Candidate &) { return 0; });
  const FoundPlan found = findPlan(asked.input, trials);
  CHECK(found.plan.step == 0);
  CHECK(found.problem == "too large: plan " + std::to_string(trials.asked.size()));
  CHECK(found.outcome.counts.refused > 0);
}

TEST_CASE("a search that stops takes the first plan that fits") {
  Asked asked;
  AnsweredTrials trials([](const Candidate &one) { return one.estimate.seconds * 0.5; });
  bool stops = false;
  asked.input.stops = [&] { return stops; };
  const auto slow = trials.seconds;
  trials.seconds = [&](const Candidate &one) {
    stops = true; // from the first trial on
    return trials.asked.size() < 2 ? 0 : slow(one);
  };
  const FoundPlan found = findPlan(asked.input, trials);
  CHECK(found.record.stopped_early);
  CHECK(found.plan.step > 0);
  CHECK(trials.asked.size() == 2);
}

TEST_CASE("solved shardings are found where they are faster, and need no solver where they cannot be") {
  struct Solved : Measured { // no messages where axis tp splits, elsewhere no better than the default
    using Measured::Measured;
    const SiteCosts *of(const SplitChoice &split, Site site) override {
      SplitChoice usual = split;
      usual.solved = false;
      const SiteCosts *costs = Measured::of(usual, site);
      if (!split.solved)
        return costs;
      CHECK(!split.sequence);
      ++asked;
      if (split.tensor == 1)
        return nullptr;
      SiteCosts faster = *costs;
      for (auto &[path, layer] : faster.front().costs.layers)
        layer.forward = layer.forwardWork, layer.backward = layer.backwardWork, layer.sums = 0;
      return &kept.insert_or_assign(split, std::move(faster)).first->second;
    }
    std::map<SplitChoice, SiteCosts> kept;
    int asked = 0;
  };
  const Formulas formulas(5);
  Solved costs(formulas, 1e9);
  SearchInput input = inputOf(8, 48, costs);
  AnsweredTrials trials([](const Candidate &one) { return one.estimate.seconds; });
  const FoundPlan usual = findPlan(input, trials);
  CHECK(costs.asked == 0);
  input.space.solves = true;
  const FoundPlan found = findPlan(input, trials);
  CHECK(costs.asked > 0);
  CHECK(found.plan.step < usual.plan.step);
  CHECK(found.outcome.counts.known() == found.outcome.counts.total);
  CHECK(found.outcome.counts.total > usual.outcome.counts.total);
  double best = INFINITY; // of all splits and schedules, in even stages
  for (PlanGroup group : groupsOf(input.space, *input.places))
    for (const ScheduleChoice &schedule : schedulesOf(input.space, group)) {
      group.split.solved = group.split.tensor > 1 && !group.split.sequence;
      if (const SiteCosts *measured = costs.of(group.split, 0)) {
        const Estimator estimator(input.layers, group, {measured},
                                  {[](int64_t, int64_t, double bytes) { return 0.01 * bytes; }});
        best = std::min(best, estimator.of(schedule, estimator.cut(schedule)).seconds);
      }
    }
  CHECK(found.plan.step <= 1.02 * best);
  for (const Candidate &one : found.outcome.candidates)
    CHECK((!one.group.split.solved || one.group.split.tensor > 1));
}

TEST_CASE("a candidate as a strategy says what was found and what was asked for") {
  Asked asked;
  asked.input.space.asked.pins.microbatches = 4;
  asked.input.space.asked.pins.origins["microbatches"] = "command line";
  const SearchOutcome outcome = searchPlans(asked.input);
  Cluster cluster{.name = "one node"};
  cluster.devices = {{.name = "gpu", .backend = "cuda", .memoryGib = 1}};
  cluster.nodes = {{.devices = {{0, 8}}, .inside = Link{100, 1}}};
  for (const Candidate &one : outcome.candidates) {
    const Decisions decisions = decisionsOf(asked.input, one, cluster, nullptr);
    CHECK(decisions.mesh == one.group.mesh());
    CHECK(decisions.microbatches == 4);
    CHECK(decisions.originOf("microbatches") == "command line");
    CHECK(decisions.originOf("mesh") == "search");
    CHECK(groupOf(decisions, 48).split == one.group.split);
    CHECK(decisions.stages.size() == (decisions.stageCount() > 1 ? one.begins.size() : 0));
    // The text of what was found, read as a request, leaves nothing open.
    CHECK(Decisions::parse(decisions.toToml(), "found.toml").toToml() == decisions.toToml());
  }
  SolvedLayouts layouts;
  layouts.shard = {{.pattern = "layers.0.weight"}};
  Candidate solved = outcome.candidates.front();
  solved.group.split.solved = true;
  CHECK(decisionsOf(asked.input, solved, cluster, &layouts).shard.front().pattern == "layers.0.weight");
}

namespace {

/// Stages of equal layers, and plans that take the time of their schedule times a factor for its name.
struct EqualStages : ScheduleTrials {
  TriedStages stages(const Decisions &strategy) override {
    const Schedule shape = strategy.plannedSchedule();
    if (shape.stages() > most)
      throw userError("too few layers");
    const double part = 1 / static_cast<double>(shape.chunks);
    const StageCosts costs{.forward = part, .inputGradient = part, .weightGradient = part, .activationBytes = 1};
    return {
        {std::vector(static_cast<size_t>(shape.stages()), costs), std::vector(static_cast<size_t>(shape.ranks), limit)},
        limit < 1 ? "rank 0 holds no microbatch" : ""};
  }
  TriedPlan tried(const Decisions &strategy) override {
    names.push_back(strategy.schedule);
    TriedPlan plan{.strategy = strategy, .step = 100};
    if (strategy.schedule == slow)
      plan.step = 0, plan.problem = "it is too large";
    if (strategy.schedule == fast)
      plan.step = 50;
    return plan;
  }
  int64_t most = 64;
  double limit = 1e9;
  std::string fast, slow;
  std::vector<std::string> names;
};

Decisions openSchedule(int64_t ranks, int64_t microbatches, int64_t chunks) {
  Decisions open;
  open.mesh = meshByRole(1, 1, ranks);
  open.microbatches = microbatches, open.chunks = chunks;
  open.schedule = searchedSchedule;
  return open;
}

} // namespace

TEST_CASE("the fastest schedule that fits is found") {
  EqualStages trials;
  const Decisions first = findSchedule(openSchedule(4, 16, 0), trials);
  CHECK(first.schedule == trials.names.front()); // of equal ones the first
  CHECK(first.scheduleOrigin == "search");
  CHECK(trials.names.size() <= 6);
  REQUIRE(trials.names.size() > 1);
  trials.fast = trials.names[1];
  CHECK(findSchedule(openSchedule(4, 16, 0), trials).schedule == trials.fast);
  trials.slow = trials.names[0], trials.fast.clear();
  CHECK(findSchedule(openSchedule(4, 16, 0), trials).schedule != trials.slow);
}

TEST_CASE("shapes into which a model cannot be cut are left out, and if all are, the first tells why") {
  EqualStages trials;
  trials.most = 4;
  CHECK(findSchedule(openSchedule(4, 16, 0), trials).chunks == 1);
  trials.most = 3;
  CHECK_THROWS_WITH(findSchedule(openSchedule(4, 16, 0), trials), "too few layers");
}

TEST_CASE("a schedule is not found where no rank holds a microbatch") {
  EqualStages trials;
  trials.limit = 0.5;
  CHECK_THROWS_WITH(findSchedule(openSchedule(4, 16, 1), trials),
                    Catch::Contains("no schedule fits the cluster: rank 0 holds no microbatch"));
}
