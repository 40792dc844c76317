// The search against brute force, on costs that are formulas.
#include "partitioner/search/Search.h"

#include "Fakes.h"
#include "partitioner/search/Sites.h"

#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <map>
#include <random>
#include <set>

using namespace cleave;
using namespace cleave::partitioner;
using namespace cleave::partitioner::test;

namespace {

constexpr auto costsOfBytes = [](int64_t, int64_t, double bytes) { return 0.01 * bytes; };

/// Ranks that lie as a cluster says, with the messages of OneKind.
struct PlacesOfSites : OneKind {
  explicit PlacesOfSites(Sites &sites) : sites(sites) {}
  const std::vector<Site> &positions(const PlanGroup &group) override { return sites.positions(group); }
  const std::vector<std::vector<Site>> &parts(const PlanGroup &group, int64_t tensor) override {
    return sites.parts(group, tensor);
  }
  std::vector<Mesh> orders(const Mesh &mesh) const override { return sites.orders(mesh); }
  Sites &sites;
};

/// On devices of the first kind layers take three times as long, and have a third of the memory.
struct MeasuredKinds : Measured {
  MeasuredKinds(const Formulas &formulas, const Cluster &cluster, const Sites &sites)
      : Measured(formulas, 900), cluster(cluster), sites(sites) {}
  const SiteCosts *of(const SplitChoice &split, Site site) override {
    auto [found, fresh] = measured.try_emplace({split, site});
    std::set<size_t> kinds;
    for (const uint32_t device : sites.devices(site))
      kinds.insert(cluster.places(4)[device].kind);
    for (const size_t kind : kinds) {
      if (!fresh)
        break;
      PlanCosts costs = formulas.costs(split);
      for (auto &[path, layer] : costs.layers)
        for (double LayerCost::*time :
             {&LayerCost::forward, &LayerCost::backward, &LayerCost::forwardWork, &LayerCost::backwardWork})
          layer.*time *= kind == 0 ? 3 : 1;
      found->second.push_back({costs, kind == 0 ? capacity / 3 : capacity});
    }
    return &found->second;
  }
  const Cluster &cluster;
  const Sites &sites;
  std::map<std::pair<SplitChoice, Site>, SiteCosts> measured;
};

/// Two replicas of two stages, in each order of the axes.
struct PlacesTogether : PlacesOfSites {
  PlacesTogether(Sites &sites, bool slowMessages) : PlacesOfSites(sites), slowMessages(slowMessages) {}
  std::vector<Mesh> orders(const Mesh &mesh) const override {
    return mesh.size(AxisRole::Pipeline) == 2 && mesh.size(AxisRole::Data) == 2 ? sites.orders(mesh)
                                                                                : std::vector<Mesh>{};
  }
  double sendSeconds(const PlanGroup &group, int64_t /*from*/, int64_t /*to*/, double bytes) override {
    return (slowMessages && group.order == usualOrder ? 40 : 0.001) * bytes;
  }
  bool slowMessages;
};

/// Sums are slow at all sites but the first.
struct MeasuredSums : Measured {
  using Measured::Measured;
  const SiteCosts *of(const SplitChoice &split, Site site) override {
    PlanCosts costs = formulas.costs(split);
    for (auto &[path, layer] : costs.layers)
      layer.sums = split.data > 1 ? (site ? 40 : 1) : 0;
    return &measured.try_emplace({split, site}, SiteCosts{{costs, capacity}}).first->second;
  }
  std::map<std::pair<SplitChoice, Site>, SiteCosts> measured;
};

} // namespace

TEST_CASE("the search finds the plan that brute force finds") {
  for (unsigned seed = 0; seed < 150; ++seed) {
    const Formulas formulas(seed);
    Measured measured(formulas, seed % 5 ? 900 : 250, seed % 6 == 1 ? seed : 0);
    SummingRanks places(formulas);
    SearchInput input = inputOf(seed % 3 == 0 ? 6 : 8, seed % 2 ? 24 : 48, measured);
    input.places = &places;
    const SearchOutcome found = searchPlans(input);
    double best = INFINITY;
    std::string which;
    int64_t total = 0;
    for (const PlanGroup &group : groupsOf(input.space, *input.places))
      for (const ScheduleChoice &schedule : schedulesOf(input.space, group)) {
        ++total;
        if (!measured.of(group.split, 0))
          continue;
        const Estimator estimator(input.layers, group, {measured.of(group.split, 0)}, {costsOfBytes});
        const Estimate estimate = estimator.of(schedule, estimator.cut(schedule));
        if (estimate.fits() && estimate.seconds < best) {
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
    if (found.candidates.empty()) {
      CHECK(std::isinf(best));
      CHECK(found.leastBytes > found.capacity);
      continue;
    }
    // Brute force tries no uneven recomputation, and no cuts that are made to fit.
    const Estimate &first = found.candidates.front().estimate;
    CHECK(first.fits());
    CHECK(first.seconds <= best * 1.02); // see slack in Search.cpp
    CHECK(lowerBound(found.candidates, {}, found.lowest) <= first.seconds * (1 + 1e-9));
    CHECK(lowerBound(found.candidates, {}, found.lowest) <= best * (1 + 1e-9));
    CHECK(counts.evaluated < total / 2);
  }
}

TEST_CASE("bounds hold wherever stages are cut, and moving cuts saves time") {
  int moved = 0;
  double loosest = 1;
  for (unsigned seed = 0; seed < 40; ++seed) {
    Formulas formulas(seed);
    Measured measured(formulas, 700);
    SearchInput input = inputOf(8, 24, measured);
    std::mt19937 random(seed);
    for (SearchLayer &layer : input.layers)
      layer.parameters = random() % 4 > 0, layer.sentBytes = static_cast<double>(random() % 5);
    for (const PlanGroup &group : groupsOf(input.space, *input.places))
      for (const ScheduleChoice &schedule : schedulesOf(input.space, group)) {
        const auto stages = static_cast<size_t>(schedule.of(group).stages());
        if (random() % 8 > 0 || stages < 2)
          continue;
        const Estimator estimator(input.layers, group, {measured.of(group.split, 0)}, {costsOfBytes});
        std::vector<size_t> begins = estimator.cut(schedule);
        if (begins.empty())
          continue;
        const double lower = estimator.lowest(schedule);
        double best = INFINITY, fitting = INFINITY;
        for (unsigned set = 0; set < 1U << 7; ++set) { // of the layers behind the first that begin stages
          std::vector<size_t> cuts{0};
          for (size_t i = 1; i < 8; ++i)
            if (set >> (i - 1) & 1)
              cuts.push_back(i);
          if (cuts.size() != stages ||
              std::ranges::any_of(cuts,
                                  [&](size_t layer) { // not within a unit
                                    return layer > 0 && std::ranges::none_of(std::span(input.layers).first(layer),
                                                                             &SearchLayer::parameters);
                                  }) ||
              std::ranges::any_of(cuts, [&](size_t layer) { return layer > 0 && !input.layers[layer].parameters; }))
            continue;
          const Estimate estimate = estimator.of(schedule, cuts);
          best = std::min(best, estimate.seconds);
          if (estimate.fits())
            fitting = std::min(fitting, estimate.seconds);
        }
        INFO("seed " << seed << ": " << schedule.name << " x" << schedule.chunks << ", pp=" << group.pipeline << ", "
                     << group.microbatches << " microbatches");
        CHECK(lower <= best * (1 + 1e-9));
        loosest = std::min(loosest, lower / best);
        const Estimate even = estimator.of(schedule, begins);
        if (!even.fits())
          continue;
        int64_t passes = 1'000'000;
        const Estimate after = estimator.moveCuts(schedule, begins, even, passes);
        CHECK(after.bytes <= std::max(memoryMargin * after.capacity, even.bytes));
        CHECK(after.seconds == estimator.of(schedule, begins).seconds);
        CHECK(after.seconds <= even.seconds);
        CHECK(after.seconds >= fitting * (1 - 1e-9));
        CHECK(passes <= 1'000'000);
        moved += after.seconds < even.seconds;
      }
  }
  CHECK(moved > 10);
  CHECK(loosest > 0);
}

TEST_CASE("replicas use other links than the ranks of axis tp where tp is inside of nodes and dp is not") {
  Cluster cluster;
  cluster.devices.emplace_back();
  cluster.nodes.push_back({.count = 4, .devices = {{0, 8}}});
  const auto apart = [&](const char *mesh) { return replicasApart(parseMesh(mesh), cluster); };
  CHECK(apart("dp=4,tp=8"));
  CHECK(apart("dp=4,tp=4"));
  CHECK(apart("dp=2,tp=8,pp=2"));
  CHECK_FALSE(apart("dp=2,tp=4"));      // one node
  CHECK_FALSE(apart("dp=2,tp=4,pp=4")); // each stage is inside of a node
  CHECK_FALSE(apart("dp=2,tp=16"));     // a group of tp on two nodes
  CHECK_FALSE(apart("dp=32"));          // no ranks that exchange activations
  CHECK_FALSE(apart("dp=16,tp=8"));     // more ranks than devices
  Mesh turned = parseMesh("dp=8,tp=4");
  turned.order =
      orderBy({AxisRole::Pipeline, AxisRole::Tensor, AxisRole::Data}); // each group of dp is inside of a node
  CHECK_FALSE(replicasApart(turned, cluster));
}

TEST_CASE("ranks that lack memory recompute, or have shorter stages") {
  int recomputed = 0, shortened = 0, mixed = 0;
  for (unsigned seed = 0; seed < 40; ++seed) {
    const Formulas formulas(seed);
    Measured measured(formulas, 150 + 40.0 * (seed % 8));
    SearchInput input = inputOf(4, 48, measured);
    input.space.asked.pins.mesh = parseMesh("pp=4");
    for (const Candidate &candidate : searchPlans(input).candidates) {
      const Schedule shape = candidate.schedule.of(candidate.group);
      std::vector<Recomputation> most(4, Recomputation::None), least(4, Recomputation::Full);
      const std::vector<size_t> positionOf = positionsOf(shape, candidate.begins, input.layers.size());
      for (size_t i = 0; i < input.layers.size(); ++i) {
        most[positionOf[i]] = std::max(most[positionOf[i]], candidate.recompute[i]);
        least[positionOf[i]] = std::min(least[positionOf[i]], candidate.recompute[i]);
      }
      const auto costsOf = [&](const std::vector<Recomputation> &kinds) {
        PositionCosts positions;
        for (const Recomputation kind : kinds) {
          SplitChoice split = candidate.group.split;
          split.recompute = kind;
          positions.push_back(measured.of(split, 0));
        }
        return positions;
      };
      Estimator estimator(input.layers, candidate.group, costsOf(most), {costsOfBytes});
      shortened += candidate.begins != estimator.cut(candidate.schedule);
      recomputed += std::ranges::count(most, most.front()) < 4;
      const Estimate all = estimator.of(candidate.schedule, candidate.begins);
      std::vector<bool> lighter;
      for (size_t i = 0; i < input.layers.size(); ++i)
        lighter.push_back(candidate.recompute[i] != most[positionOf[i]]);
      estimator.mix(costsOf(least), lighter);
      const Estimate again = estimator.of(candidate.schedule, candidate.begins);
      CHECK(again.fits());
      CHECK(again.lacking.empty());
      CHECK(again.seconds == Approx(candidate.estimate.seconds));
      if (most == least)
        continue;
      ++mixed;
      CHECK(again.seconds < all.seconds);
      CHECK(candidate.safer.size() == candidate.recompute.size());
      for (size_t i = 0; i < input.layers.size(); ++i)
        if (!lighter[i] && most[positionOf[i]] != least[positionOf[i]]) { // with one layer more it lacks memory
          std::vector<bool> more = lighter;
          more[i] = true;
          estimator.mix(costsOf(least), more);
          CHECK_FALSE(estimator.memoryOf(candidate.schedule, candidate.begins, 0.98).lacking.empty());
        }
    }
    input.space.asked.pins.recompute = {{RecomputeRule::everyLayer, Recomputation::None, "file"}};
    for (const Candidate &candidate : searchPlans(input).candidates)
      CHECK(std::ranges::count(candidate.recompute, Recomputation::None) == 8);
  }
  CHECK(mixed > 0);
  CHECK(recomputed > 0);
  CHECK(shortened > 0);
}

TEST_CASE("on devices of two kinds stages are as long as their devices are fast") {
  Cluster cluster{.name = "mixed"};
  cluster.devices = {{.name = "slow", .backend = "cpu", .memoryGib = 1},
                     {.name = "fast", .backend = "cpu", .memoryGib = 1}};
  cluster.nodes = {{.devices = {{0, 1}, {1, 1}}, .inside = Link{1, 1}},
                   {.devices = {{1, 1}, {0, 1}}, .inside = Link{1, 1}}};
  cluster.network = Link{1, 1};
  for (unsigned seed = 0; seed < 20; ++seed) {
    const Formulas formulas(seed);
    Sites sites(cluster, 4);
    PlacesOfSites places(sites);
    MeasuredKinds measured(formulas, cluster, sites);
    SearchInput input = inputOf(4, 24, measured);
    input.places = &places;
    double best = INFINITY;
    for (const PlanGroup &group : groupsOf(input.space, *input.places))
      for (const ScheduleChoice &schedule : schedulesOf(input.space, group)) {
        PositionCosts positions;
        for (const Site site : places.positions(group))
          positions.push_back(measured.of(group.split, site));
        const Estimator estimator(input.layers, group, positions, {costsOfBytes});
        for (const auto &begins : {estimator.cut(schedule), estimator.cutToFit(schedule)})
          if (const Estimate estimate = estimator.of(schedule, begins); estimate.fits())
            best = std::min(best, estimate.seconds);
      }
    const SearchOutcome found = searchPlans(input);
    REQUIRE(!found.candidates.empty());
    CHECK(found.candidates.front().estimate.seconds <= best * 1.02);
    CHECK(lowerBound(found.candidates, {}, found.lowest) <=
          std::min(best, found.candidates.front().estimate.seconds) * (1 + 1e-9));
    // The second node has its kinds in the other order: no order of two axes puts one kind into each stage.
    const PlanGroup halves(parseMesh("dp=2,pp=2"), {.rows = 4}, 6);
    CHECK(sites.positions(halves).size() == 2);
    CHECK(measured.of(halves.split, sites.positions(halves)[0])->size() == 2);
    const PlanGroup line(parseMesh("pp=4"), {.rows = 4}, 6);
    const Estimator estimator(
        input.layers, line,
        {measured.of(line.split, sites.positions(line)[0]), measured.of(line.split, sites.positions(line)[1]),
         measured.of(line.split, sites.positions(line)[2]), measured.of(line.split, sites.positions(line)[3])},
        {costsOfBytes});
    const std::vector<size_t> begins = estimator.cut({"1f1b", 1});
    const auto work = [&](size_t stage) {
      double sum = 0;
      for (size_t i = begins[stage]; i < (stage + 1 < 4 ? begins[stage + 1] : 8); ++i)
        sum += input.layers[i].measured == "b" ? 3 : 1;
      return sum;
    };
    CHECK(std::max(work(0), work(3)) <= std::min(work(1), work(2))); // slow, fast, fast, slow
  }
}

TEST_CASE("a parameter of two layers is stored and summed where both are") {
  const Formulas formulas(2);
  Measured measured(formulas, 1e9);
  SearchInput input = inputOf(2, 24, measured);
  const PlanGroup group(parseMesh("pp=2"), {.rows = 4}, 6);
  const ScheduleChoice schedule{"1f1b", 1};
  std::vector<int64_t> summed;
  double bytes = 0;
  const PipelineNetwork network{[](int64_t, int64_t, double) { return 0.0; },
                                [&](const std::vector<int64_t> &positions, double gradient) {
                                  summed = positions, bytes = gradient;
                                  return 1000.0;
                                }};
  const auto estimate = [&] {
    const Estimator estimator(input.layers, group, {measured.of(group.split, 0)}, network);
    return estimator.of(schedule, estimator.cut(schedule));
  };
  const Estimate apart = estimate();
  CHECK(summed.empty());
  input.layers.back().tiedTo = 6, input.layers.back().tiedShare = 0.5; // both in the last stage
  CHECK(estimate().seconds == apart.seconds);
  CHECK(estimate().bytes == apart.bytes);
  input.layers.back().tiedTo = 0;
  const Estimate tied = estimate();
  CHECK(summed == std::vector<int64_t>{0, 1});
  const LayerCost &owner = measured.of(group.split, 0)->front().costs.layers.at(input.layers.front().measured);
  CHECK(bytes == Approx(owner.gradients / 2));
  CHECK(tied.seconds == Approx(apart.seconds + 1000).epsilon(0.01));
  CHECK(tied.bytes >= apart.bytes);
  CHECK(tied.bytes <= apart.bytes + (owner.parameters + owner.gradients + owner.states) / 2);
}

TEST_CASE("stages lie together on a node where messages are slower than sums") {
  Cluster cluster{.name = "two nodes"};
  cluster.devices = {{.name = "gpu", .backend = "cuda", .memoryGib = 1}};
  cluster.nodes = {{.count = 2, .devices = {{0, 4}}, .inside = Link{100, 1}}};
  cluster.network = Link{1, 1};
  Sites sites(cluster, 8);
  const Mesh mesh = parseMesh("dp=2,tp=2,pp=2");
  const std::vector<Mesh> orders = sites.orders(mesh);
  std::vector<std::string> texts;
  for (const Mesh &order : orders)
    texts.push_back(meshText(order));
  REQUIRE(texts == std::vector<std::string>{"dp=2,tp=2,pp=2", "dp=2/pp=2/tp=2", "tp=2/pp=2/dp=2"});
  CHECK(sites.orders(parseMesh("dp=8")).size() == 1);
  CHECK(sites.orders(parseMesh("tp=4,pp=2")).size() == 2);
  const PlanGroup usual(parseMesh("dp=2,tp=2,pp=2"), {.rows = 4}, 6);
  PlanGroup other = usual;
  other.order = orders[1].order;
  CHECK(sites.sendSeconds(other, 0, 1, 1e6) < sites.sendSeconds(usual, 0, 1, 1e6) / 10);
  CHECK(sites.sumSeconds(usual, 1e6, false) < sites.sumSeconds(other, 1e6, false) / 10);
  CHECK(sites.positions(usual) == std::vector<Site>{0});
  const Site site = sites.positions(other).front();
  CHECK(sites.devices(site) == std::vector<uint32_t>{0, 1, 4, 5});
  // Both stages work at the same time for 5 of 7 passes, 10 of 12 of their work; with one microbatch they never do.
  CHECK(sites.networkShare(site) == Approx(12.0 / 22));
  PlanGroup one = other;
  one.microbatches = 1;
  CHECK(sites.networkShare(sites.positions(one).front()) == 1);
  CHECK(sites.networkShare(sites.whenFull(site)) == 0.5);
  CHECK(sites.whenFull(sites.positions(one).front()) == sites.whenFull(site));

  for (const bool slowMessages : {false, true}) {
    const Formulas formulas(2);
    MeasuredSums measured(formulas, 1e9);
    PlacesTogether places(sites, slowMessages);
    SearchInput input = inputOf(8, 48, measured);
    input.space.asked.pins.zero = 0;
    input.places = &places;
    const SearchOutcome found = searchPlans(input);
    REQUIRE(!found.candidates.empty());
    CHECK((found.candidates.front().group.order == usualOrder) == !slowMessages);
  }
}

TEST_CASE("excluded rows are refused, and a search that is stopped keeps what it has") {
  const Formulas formulas(2);
  Measured measured(formulas, 1e9);
  SearchInput input = inputOf(8, 48, measured);
  const SearchOutcome first = searchPlans(input);
  const Candidate best = first.candidates.front();
  input.excluded = {rowOf(best.group, best.schedule)};
  const SearchOutcome second = searchPlans(input);
  CHECK(second.counts.total == first.counts.total);
  CHECK(second.counts.refused > first.counts.refused);
  CHECK(second.candidates.front().estimate.seconds >= best.estimate.seconds);
  for (const Candidate &candidate : second.candidates)
    CHECK(!input.excluded.contains(rowOf(candidate.group, candidate.schedule)));
  for (int most : {0, 5, 50, 500}) {
    int asked = 0;
    input.stops = [&] { return ++asked > most; };
    const SearchOutcome stopped = searchPlans(input);
    const SearchCounts &counts = stopped.counts;
    CHECK(counts.evaluated + counts.prunedByBound + counts.prunedByMemory + counts.refused == counts.total);
    CHECK(lowerBound(stopped.candidates, {}, stopped.lowest) <=
          second.candidates.front().estimate.seconds * (1 + 1e-9));
    CHECK((stopped.stoppedEarly || stopped.candidates.size() == second.candidates.size()));
    if (most == 0)
      CHECK(stopped.candidates.empty());
  }
}

TEST_CASE("a model whose code fixes its rows is searched with these") {
  const Formulas formulas(3);
  struct TwelveRows : Measured {
    using Measured::Measured;
    bool takesRows(int64_t rows) override { return rows == 12; }
    const SiteCosts *of(const SplitChoice &split, Site site) override {
      return takesRows(split.rows) ? Measured::of(split, site) : nullptr;
    }
  } measured(formulas, 1e9);
  SearchInput input = inputOf(4, 48, measured);
  const SearchOutcome found = searchPlans(input);
  REQUIRE(!found.candidates.empty());
  for (const Candidate &candidate : found.candidates)
    CHECK(candidate.group.microbatches == 4);
  CHECK(found.counts.refused > 0);
}

TEST_CASE("what a request pins is kept") {
  const Formulas formulas(1);
  Measured measured(formulas, 1e9);
  SearchInput input = inputOf(8, 48, measured);
  input.space.asked.pins.microbatches = 4;
  input.space.asked.pins.zero = 1;
  input.space.asked.pins.mesh = parseMesh("dp=2,tp=2,pp=2");
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
  OneKind places;
  Space space{.asked = {.devices = 12, .batch = 24, .evalBatch = 12}, .layers = 3};
  for (const PlanGroup &group : groupsOf(space, places)) {
    CHECK(group.ranks() == 12);
    CHECK(group.pipeline <= 3);
    CHECK(24 % group.microbatches == 0);
    CHECK(12 % group.microbatches == 0);
    CHECK(24 / group.microbatches >= group.split.data);
    for (const ScheduleChoice &schedule : schedulesOf(space, group))
      CHECK(group.pipeline * schedule.chunks <= std::max<int64_t>(space.layers, 1));
  }
  space.mixesRows = true;
  for (const PlanGroup &group : groupsOf(space, places))
    CHECK(group.microbatches == 1);
}
