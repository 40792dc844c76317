// Which steps form a batch: steps of one kernel without direct or indirect dependences. The new order respects all
// dependences.
#include "passes/export/Batches.h"

#include <catch2/catch.hpp>

#include <algorithm>
#include <random>
#include <set>

using namespace cleave::passes;

namespace {

using Groups = std::vector<std::vector<size_t>>;

bool meet(const std::vector<uint32_t> &a, const std::vector<uint32_t> &b) {
  return std::any_of(a.begin(), a.end(), [&](uint32_t slot) { return std::count(b.begin(), b.end(), slot) != 0; });
}

bool conflict(const StepUse &a, const StepUse &b) {
  return meet(a.writes, b.writes) || meet(a.writes, b.reads) || meet(a.reads, b.writes) || (a.ordered && b.ordered);
}

/// Checks that every step occurs once, that conflicting steps keep their order and are never in one group, and that a
/// group has one kernel.
void checkOrder(const std::vector<StepUse> &steps, const Groups &groups) {
  std::vector<size_t> place(steps.size(), SIZE_MAX);
  for (size_t g = 0; g < groups.size(); ++g) {
    CHECK(std::is_sorted(groups[g].begin(), groups[g].end()));
    for (size_t step : groups[g]) {
      REQUIRE(place[step] == SIZE_MAX);
      place[step] = g;
      if (groups[g].size() > 1)
        CHECK((steps[step].kernel >= 0 && steps[step].kernel == steps[groups[g][0]].kernel));
    }
  }
  for (size_t i = 0; i < steps.size(); ++i) {
    REQUIRE(place[i] != SIZE_MAX);
    for (size_t j = i + 1; j < steps.size(); ++j)
      if (conflict(steps[i], steps[j]))
        CHECK(place[i] < place[j]);
  }
}

Groups batch(const std::vector<StepUse> &steps) {
  Groups groups = batchSteps(steps);
  checkOrder(steps, groups);
  return groups;
}

/// An update in place of parameter slot p by gradient slot g, with shared scalar slot 0.
StepUse update(uint32_t p, uint32_t g, int64_t kernel = 7) { return {kernel, false, {0, g, p}, {p}}; }

} // namespace

TEST_CASE("batches: updates in place of several parameters are one", "[export][batch]") {
  CHECK(batch({{1, false, {}, {0}}, update(10, 20), update(11, 21), update(12, 22)}) == Groups{{0}, {1, 2, 3}});
  CHECK(batch({}).empty());
  CHECK(batch({update(10, 20)}) == Groups{{0}});
}

TEST_CASE("batches: different kernels, and steps that are none, stay apart", "[export][batch]") {
  CHECK(batch({update(10, 20, 1), update(11, 21, 2), update(12, 22, 1), update(13, 23, 2)}) == Groups{{0, 2}, {1, 3}});
  CHECK(batch({update(10, 20), {-1, false, {30}, {31}}, update(11, 21)}) == Groups{{1}, {0, 2}});
}

TEST_CASE("batches: members do not depend on each other", "[export][batch]") {
  // The second step reads what the first writes; the third is independent of both.
  CHECK(batch({update(10, 20), {7, false, {10}, {11}}, update(12, 22)}) == Groups{{0, 2}, {1}});
  CHECK(batch({update(10, 20), update(10, 21)}) == Groups{{0}, {1}}); // both write slot 10
  // slot 10 is overwritten after it is read
  CHECK(batch({{7, false, {10}, {11}}, {7, false, {12}, {10}}}) == Groups{{0}, {1}});
  CHECK(batch({{7, false, {1}, {2}}, {7, false, {2}, {3}}, {7, false, {1}, {4}}, {7, false, {4}, {5}}}) ==
        Groups{{0, 2}, {1, 3}}); // two independent chains
}

TEST_CASE("batches: nor by way of other steps", "[export][batch]") {
  // Step 1 computes a norm of step 0's result, and step 3 reads the norm: step 3 cannot run with step 0.
  CHECK(batch({update(10, 20), {1, false, {10}, {5}}, update(11, 21), {7, false, {5, 12}, {12}}}) ==
        Groups{{0, 2}, {1}, {3}});
  // Two kernels whose groups would wait for each other: a0 before b0, and b1 before a1.
  CHECK(batch({{1, false, {}, {10}}, {2, false, {10}, {11}}, {2, false, {}, {12}}, {1, false, {12}, {13}}}) ==
        Groups{{0}, {1, 2}, {3}});
}

TEST_CASE("batches: what other ranks take part in keeps its order", "[export][batch]") {
  CHECK(batch({{-1, true, {30}, {30}}, update(10, 20), {-1, true, {31}, {31}}, update(11, 21)}) ==
        Groups{{0}, {2}, {1, 3}});
  // Step 0 reads slot 20 before the reduction. Step 4 reads slot 30 after its reduction, which comes after the first
  // one.
  CHECK(batch({update(10, 20), {-1, true, {20}, {20}}, update(11, 21), {-1, true, {30}, {30}}, update(12, 30)}) ==
        Groups{{0, 2}, {1}, {3}, {4}});
}

TEST_CASE("batches: what other ranks take part in may come first", "[export][batch]") {
  // The second collective reads what step 2 writes.
  const std::vector<StepUse> steps{{-1, false, {}, {40}}, {-1, true, {30}, {30}}, update(10, 20),
                                   {-1, false, {}, {41}}, {-1, true, {10}, {31}}, update(11, 31)};
  CHECK(batch(steps) == Groups{{0}, {1}, {2}, {3}, {4}, {5}});
  const Groups first = batchSteps(steps, true);
  checkOrder(steps, first);
  CHECK(first == Groups{{1}, {2}, {4}, {0}, {3}, {5}});
}

TEST_CASE("batches: any steps keep their dependences", "[export][batch]") {
  std::mt19937 random(5);
  const auto below = [&](uint32_t n) { return static_cast<uint32_t>(random() % n); };
  size_t batched = 0;
  for (int round = 0; round < 300; ++round) {
    std::vector<StepUse> steps(below(40));
    const uint32_t slots = 4 + below(60);
    for (StepUse &step : steps) {
      step.ordered = below(8) == 0;
      step.kernel = step.ordered ? -1 : static_cast<int64_t>(below(4)) - 1;
      for (uint32_t i = below(3); i-- > 0;)
        step.reads.push_back(below(slots));
      for (uint32_t i = 1 + below(2); i-- > 0;)
        step.writes.push_back(below(slots));
    }
    const Groups groups = batch(steps);
    batched += static_cast<size_t>(
        std::count_if(groups.begin(), groups.end(), [](const auto &group) { return group.size() > 1; }));
  }
  CHECK(batched > 300);
}
