// Properties of what a search finds that need no known best plan, on random models and clusters.
#include "SearchCase.h"
#include "partitioner/simulate/Simulate.h"

#include <catch2/catch.hpp>

using namespace cleave;
using namespace cleave::partitioner;
using namespace cleave::test;

namespace {

double stepOn(const passes::FoundStrategy &found, const ClusterFile &cluster) {
  return partitioner::simulate(found.plan->plan(), cluster.cluster).stepSeconds;
}

/// What a search finds for the same model on another cluster.
double searchedOn(SearchCase &drawn, const DrawnCluster &other) {
  const auto before = drawn.request.cluster;
  drawn.request.cluster = other.file();
  const double step = drawn.found().record->step;
  drawn.request.cluster = before;
  return step;
}

void checkProperties(unsigned seed) {
  constexpr double same = 1.001;
  SearchCase drawn(seed);
  const passes::FoundStrategy found = drawn.found();
  const double step = found.record->step;
  INFO("seed " << seed << ": " << drawn.what << ": " << 1e3 * step << " ms, " << meshText(found.strategy.mesh));

  // The names of layers say nothing.
  CHECK(SearchCase(seed, "a_longer_name").found().record->step == step);

  // None of the plans that differ in one decision is faster.
  for (const passes::Alternative &other : passes::alternativesTo(drawn.trace(), drawn.request, found.strategy))
    if (other.step > 0) {
      INFO(other.decision << " " << other.value);
      CHECK(step <= same * other.step);
    }

  // On other devices and links the search finds a plan that is as fast as this one is there.
  DrawnCluster links = drawn.cluster, latency = drawn.cluster, memory = drawn.cluster, slower = drawn.cluster;
  links.network *= 4, links.inside *= 2, latency.latency *= 3, memory.memory *= 2, slower.network /= 2;
  for (const auto &[name, other] : {std::pair("faster links", links), std::pair("a longer latency", latency),
                                    std::pair("more memory", memory), std::pair("a slower network", slower)}) {
    INFO("with " << name);
    CHECK(searchedOn(drawn, other) <= same * stepOn(found, *other.file()));
  }
}

} // namespace

TEST_CASE("a search finds as much on other clusters, with other names, and beside its plan") { checkProperties(10); }

/// Takes about half a minute for each model: run by hand, by its name. See forEachSeed for others.
TEST_CASE("what is found for many models has these properties", "[.]") { forEachSeed(20, checkProperties); }
