// The search against brute force, on costs that are formulas.
#include "partitioner/search/Search.h"

#include <catch2/catch.hpp>

#include <cmath>
#include <fmt/format.h>
#include <map>
#include <random>

using namespace cleave;
using namespace cleave::partitioner;

namespace {

/// Costs of layers by formulas: computation grows with the rows and shrinks with axis tp, with a fixed part that larger
/// microbatches spread; axis tp adds communication, axis dp the sums of gradients.
struct Formulas {
  std::mt19937 random;
  double launch, communication, sums, bytes;

  explicit Formulas(unsigned seed) : random(seed) {
    const auto draw = [&](double low, double high) { return std::uniform_real_distribution<>(low, high)(random); };
    launch = draw(0, 0.5), communication = draw(0, 0.3), sums = draw(0, 20), bytes = draw(10, 60);
  }

  PlanCosts costs(const SplitChoice &split) const {
    PlanCosts all;
    const auto rows = static_cast<double>(split.rowsOfRank()), tensor = static_cast<double>(split.tensor),
               data = static_cast<double>(split.data);
    const bool again = split.recompute == Recomputation::Full, some = split.recompute == Recomputation::Selective;
    for (const char *path : {"a", "b"}) {
      LayerCost &layer = all.layers[path];
      const double work = (path[0] == 'a' ? 1.0 : 3.0) * rows / tensor;
      const double exchange = tensor > 1 ? communication * rows * (tensor - 1) / tensor : 0;
      layer.forwardWork = work + launch;
      layer.backwardWork = 2 * work + launch + (again ? work + launch : some ? 0.2 * work : 0);
      layer.forward = layer.forwardWork + exchange;
      layer.backward = layer.backwardWork + exchange;
      layer.kept = rows / tensor * (again ? 1 : some ? 4 : 10);
      layer.parameters = bytes / tensor / (split.zero >= 3 ? data : 1);
      layer.gradients = bytes / tensor / (split.zero >= 2 ? data : 1);
      layer.states = 2 * bytes / tensor / (split.zero >= 1 ? data : 1);
      all.total.parameters += layer.parameters;
    }
    all.sums = data > 1 ? sums * (data - 1) / data / tensor * (split.zero ? 1.1 : 1) : 0;
    all.sumCount = 4;
    all.endWork = 0.1 / tensor / (split.zero ? data : 1);
    all.hides = true;
    return all;
  }
};

SearchInput inputOf(int64_t devices, int64_t batch, double capacity) {
  SearchInput input;
  input.request.devices = devices;
  input.request.batch = batch;
  for (int i = 0; i < 8; ++i)
    input.layers.push_back({"layers." + std::to_string(i), i % 3 ? "a" : "b", true, 1});
  input.request.layers = 8;
  input.capacity = capacity;
  input.secondsPerByte = [](const PlanGroup &) { return 0.01; };
  return input;
}

} // namespace

TEST_CASE("the search finds the plan that brute force finds") {
  for (unsigned seed = 0; seed < 60; ++seed) {
    const Formulas formulas(seed);
    SearchInput input = inputOf(seed % 3 == 0 ? 6 : 8, seed % 2 ? 24 : 48, seed % 5 ? 900 : 250);
    std::map<SplitChoice, PlanCosts> measured;
    input.measure = [&](const SplitChoice &split) -> const PlanCosts * {
      return &measured.try_emplace(split, formulas.costs(split)).first->second;
    };
    const SearchOutcome found = searchPlans(input);
    double best = INFINITY;
    std::string which;
    int64_t total = 0;
    for (const PlanGroup &group : groupsOf(input.request))
      for (const ScheduleChoice &schedule : schedulesOf(input.request, group)) {
        ++total;
        const PlanCosts costs = formulas.costs(group.split);
        const Estimate estimate = Estimator(input.layers, group, costs, 0.01).of(schedule);
        if (estimate.bytes <= input.capacity && estimate.seconds < best) {
          best = estimate.seconds;
          which = fmt::format("dp={} tp={} pp={}, {} microbatches, {} x{}, {}, zero {}", group.split.data,
                              group.split.tensor, group.pipeline, group.microbatches, schedule.name, schedule.chunks,
                              text(group.split.recompute), group.split.zero);
        }
      }
    INFO("seed " << seed << ": " << which);
    const SearchCounts &counts = found.counts;
    CHECK(counts.total == total);
    CHECK(counts.evaluated + counts.prunedByBound + counts.prunedByMemory + counts.refused == total);
    REQUIRE(found.candidates.empty() == std::isinf(best));
    if (found.candidates.empty()) {
      CHECK(found.leastBytes > input.capacity);
      continue;
    }
    CHECK(found.candidates.front().estimate.seconds == Approx(best).epsilon(0.02)); // see slack in Search.cpp
    CHECK(found.lower <= best * (1 + 1e-9));
    CHECK(counts.evaluated < total / 2);
  }
}

TEST_CASE("what a request pins is kept") {
  SearchInput input = inputOf(8, 48, 1e9);
  const Formulas formulas(1);
  std::map<SplitChoice, PlanCosts> measured;
  input.measure = [&](const SplitChoice &split) -> const PlanCosts * {
    return &measured.try_emplace(split, formulas.costs(split)).first->second;
  };
  input.request.pins.microbatches = 4;
  input.request.pins.zero = 1;
  input.request.pins.mesh = parseMesh("dp=2,tp=2,pp=2");
  const SearchOutcome found = searchPlans(input);
  REQUIRE(!found.candidates.empty());
  for (const Candidate &candidate : found.candidates) {
    CHECK(candidate.group.microbatches == 4);
    CHECK(candidate.group.split.zero == 1);
    CHECK(candidate.group.split.data == 2);
    CHECK(candidate.group.split.tensor == 2);
  }
}

TEST_CASE("a space has no plan that cannot be") {
  SpaceRequest request{.pins = {}, .devices = 12, .batch = 24, .evalBatch = 12, .layers = 3};
  for (const PlanGroup &group : groupsOf(request)) {
    CHECK(group.ranks() == 12);
    CHECK(group.pipeline <= 3);
    CHECK(24 % group.microbatches == 0);
    CHECK(12 % group.microbatches == 0);
    CHECK(24 / group.microbatches >= group.split.data);
    for (const ScheduleChoice &schedule : schedulesOf(request, group))
      CHECK(group.pipeline * schedule.chunks <= std::max<int64_t>(request.layers, 1));
  }
  request.mixesRows = true;
  for (const PlanGroup &group : groupsOf(request))
    CHECK(group.microbatches == 1);
}
