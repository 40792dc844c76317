// What a search finds against what it finds where the mesh and the order of its axes are pinned, on random models and
// clusters.
#include "SearchCase.h"
#include "runtime/base/Error.h"
#include "runtime/plan/PlanFile.h"
#include "runtime/plan/plan_generated.h"

#include <algorithm>
#include <catch2/catch.hpp>

using namespace cleave;
using namespace cleave::partitioner;
using namespace cleave::test;

namespace {

/// Every mesh of so many ranks, with every order of the axes that split.
std::vector<Mesh> meshesOf(int64_t ranks) {
  std::vector<Mesh> all;
  for (int64_t dp = 1; dp <= ranks; ++dp)
    for (int64_t tp = 1; tp <= ranks / dp; ++tp)
      if (ranks % (dp * tp) == 0) {
        std::vector<std::string> axes;
        for (const auto &[name, size] : {std::pair("dp", dp), std::pair("tp", tp), std::pair("pp", ranks / dp / tp)})
          if (size > 1)
            axes.push_back(fmt::format("{}={}", name, size));
        std::ranges::sort(axes);
        do
          all.push_back(parseMesh(fmt::format("{}", fmt::join(axes, "/"))));
        while (std::ranges::next_permutation(axes).found);
      }
  return all;
}

void compare(unsigned seed) {
  SearchCase drawn(seed);
  const passes::FoundStrategy found = drawn.found();
  double best = found.record->step;
  std::string which = "none";
  const int64_t ranks = drawn.request.toSearch->devices;
  for (const Mesh &mesh : meshesOf(ranks)) {
    drawn.request.toSearch->pins.mesh = mesh;
    try {
      if (const double step = drawn.found().record->step; step < best)
        best = step, which = meshText(mesh);
    } catch (const Error &) { // the mesh does not suit the model, or no plan fits
    }
  }
  INFO("seed " << seed << ": " << drawn.what << ": " << 1e3 * found.record->step << " ms, bound "
               << 1e3 * found.record->lower << ", " << meshText(found.strategy.mesh) << "; " << 1e3 * best
               << " with the mesh " << which);
  CHECK(best >= 0.999 * found.record->step);
  fmt::print(stderr, "{}: {:.3f} of {:.3f} ms\n", seed, best / found.record->step, 1e3 * found.record->step);
}

} // namespace

/// Takes about a minute for each model: run by hand, by its name. See forEachSeed for others.
TEST_CASE("no pinned mesh of 23 models is faster", "[.]") { forEachSeed(23, compare); }
