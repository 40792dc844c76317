// A model and devices for tests of the search: layers whose costs are formulas.
#pragma once
#include "partitioner/search/Candidates.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <random>
#include <string>

namespace cleave::partitioner::test {

/// Costs of layers by formulas: computation grows with the rows and shrinks with axis tp, with a fixed part that larger
/// microbatches spread; axis tp adds communication, axis dp the sums of gradients.
struct Formulas {
  std::mt19937 random;
  double launch, communication, sums, bytes;
  double scattered; ///< sums with ZeRO over those without

  explicit Formulas(unsigned seed) : random(seed) {
    const auto draw = [&](double low, double high) { return std::uniform_real_distribution<>(low, high)(random); };
    launch = seed % 4 ? draw(0, 0.5) : draw(0, 50), communication = draw(0, 0.3),
    sums = draw(0, seed % 7 < 4 ? 20 : 300), bytes = draw(10, 60), scattered = seed % 2 ? 1.1 : 0.1;
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
      layer.sums = data > 1 ? sums / 8 * (data - 1) / data / tensor * (split.zero ? scattered : 1) : 0;
      all.total.parameters += layer.parameters;
    }
    all.endWork = 0.1 / tensor / (split.zero ? data : 1);
    all.hides = true;
    return all;
  }
};

/// Devices of one kind: a message takes 0.01 seconds for each byte, sums nothing.
struct OneKind : RankPlaces {
  const std::vector<Site> &positions(const PlanGroup & /*group*/) override { return first; }
  const std::vector<std::vector<Site>> &parts(const PlanGroup & /*group*/, int64_t /*tensor*/) override {
    return firstParts;
  }
  std::vector<Mesh> orders(const Mesh &mesh) const override { return {mesh}; }
  double sendSeconds(const PlanGroup & /*group*/, int64_t /*from*/, int64_t /*to*/, double bytes) override {
    return 0.01 * bytes;
  }
  double sumSeconds(const PlanGroup & /*group*/, double /*bytes*/, bool /*scatters*/) override { return 0; }
  double tiedSeconds(const PlanGroup & /*group*/, const std::vector<int64_t> & /*positions*/,
                     double /*bytes*/) override {
    return 0;
  }
  double metricsSeconds() override { return 0; }
  const SharedLinks &sharedLinks(const PlanGroup & /*group*/) override { return noSharedLinks; }

private:
  const std::vector<Site> first{0};
  const std::vector<std::vector<Site>> firstParts{{0}};
};

/// Sums of a rank's gradients; those of ZeRO's stages 2 and 3 come after the passes here, too, so they have no bound.
struct SummingRanks : OneKind {
  explicit SummingRanks(const Formulas &formulas) : formulas(formulas) {}
  double sumSeconds(const PlanGroup &group, double bytes, bool scatters) override {
    const auto data = static_cast<double>(group.split.data);
    return group.split.zero >= 2
               ? 0
               : formulas.sums / 8 * (data - 1) / data * bytes / formulas.bytes * (scatters ? formulas.scattered : 1);
  }
  const Formulas &formulas;
};

/// Costs on devices of one kind.
class Measured : public SplitCosts {
public:
  /// With `refuses`, a third of the splits is impossible, as marks of a model's code may make them.
  Measured(const Formulas &formulas, double capacity, unsigned refuses = 0)
      : formulas(formulas), capacity(capacity), refuses(refuses) {}
  bool takesRows(int64_t /*rows*/) override { return true; }
  const SiteCosts *of(const SplitChoice &split, Site /*site*/) override {
    const bool whole = split.data == 1 && split.tensor == 1;
    if (refuses && !whole && std::mt19937(refuses + split.data * 1009 + split.tensor * 31 + split.rows)() % 3 == 0)
      return nullptr;
    return &measured.try_emplace(split, SiteCosts{{formulas.costs(split), capacity}}).first->second;
  }
  SplitChoice trialOf(const SplitChoice &split) override { return split; }
  void prepare(const std::vector<Wanted> & /*wanted*/) override {}

protected:
  const Formulas &formulas;
  double capacity;

private:
  unsigned refuses;
  std::map<SplitChoice, SiteCosts> measured;
};

/// Eight layers of two kinds.
inline SearchInput inputOf(int64_t devices, int64_t batch, SplitCosts &costs) {
  static OneKind oneKind;
  SearchInput input;
  input.space.asked.devices = devices;
  input.space.asked.batch = batch;
  for (int i = 0; i < 8; ++i)
    input.layers.push_back({"layers." + std::to_string(i), i % 3 ? "a" : "b", true, 1});
  input.space.layers = 8;
  input.places = &oneKind;
  input.costs = &costs;
  return input;
}

} // namespace cleave::partitioner::test
