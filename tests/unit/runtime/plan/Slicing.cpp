// The part of a tensor that a rank holds.
#include "runtime/base/Error.h"
#include "runtime/plan/Inputs.h"
#include "runtime/plan/Slices.h"
#include "tests/support/PlanBuilder.h"

#include <catch2/catch.hpp>

#include <set>

using namespace cleave;
using namespace cleave::test;

namespace {

using Factors = std::vector<std::pair<int64_t, std::vector<uint8_t>>>;

struct Packed {
  flatbuffers::FlatBufferBuilder builder;
  const Sharding *sharding;
};

std::unique_ptr<Packed> pack(std::vector<Factors> dims) {
  ProgramWriter program;
  uint32_t slot = program.slot("x", plan::DType::F32, {1});
  program.shard(slot, std::move(dims));
  auto packed = std::make_unique<Packed>();
  packed->builder.Finish(Sharding::Pack(packed->builder, program.program.slots[slot]->sharding.get()));
  packed->sharding = flatbuffers::GetRoot<Sharding>(packed->builder.GetBufferPointer());
  return packed;
}

using Indices = std::vector<int64_t>;

/// Expands boxes: the global linear index of every local element.
std::vector<int64_t> expand(const std::vector<Box> &boxes, const Indices &global, const Indices &local) {
  int64_t count = 1;
  for (int64_t size : local)
    count *= size;
  std::vector<int64_t> map(static_cast<size_t>(count), -1);
  for (const Box &box : boxes) {
    int64_t inside = 1;
    for (int64_t size : box.size)
      inside *= size;
    for (int64_t i = 0; i < inside; ++i) {
      int64_t rest = i, from = 0, to = 0, fromStep = 1, toStep = 1;
      for (size_t d = global.size(); d-- > 0;) {
        int64_t at = rest % box.size[d];
        rest /= box.size[d];
        from += (box.globalStart[d] + at) * fromStep;
        to += (box.localStart[d] + at) * toStep;
        fromStep *= global[d];
        toStep *= local[d];
      }
      CHECK(map[static_cast<size_t>(to)] == -1);
      map[static_cast<size_t>(to)] = from;
    }
  }
  return map;
}

} // namespace

TEST_CASE("slices: remainders go to the first ranks") {
  CHECK(splitPart(10, 4, 0).count == 3);
  CHECK(splitPart(10, 4, 1).begin == 3);
  CHECK(splitPart(10, 4, 2).begin == 6);
  CHECK(splitPart(10, 4, 3).begin == 8);
  CHECK(splitPart(10, 4, 3).count == 2);
  CHECK(splitPart(2, 4, 3).count == 0);
}

TEST_CASE("slices: no sharding is the whole tensor") {
  std::vector<uint32_t> mesh{2}, coords{1};
  Indices global{3, 4};
  CHECK(localShape(nullptr, global, mesh, coords) == global);
  CHECK(localBoxes(nullptr, global, mesh, coords) == std::vector<Box>{{{0, 0}, {3, 4}, {0, 0}}});
  CHECK(localBoxes(nullptr, {}, mesh, coords).size() == 1);
}

TEST_CASE("slices: rows over one axis") {
  auto s = pack({{{10, {0}}}, {{4, {}}}});
  std::vector<uint32_t> mesh{4, 2}, coords{2, 1};
  Indices global{10, 4};
  CHECK(localShape(s->sharding, global, mesh, coords) == Indices{2, 4});
  CHECK(localBoxes(s->sharding, global, mesh, coords) == std::vector<Box>{{{6, 0}, {2, 4}, {0, 0}}});
}

TEST_CASE("slices: an empty share has no boxes, however many runs its other dimensions have") {
  auto s = pack({{{int64_t{1} << 40, {}}, {2, {0}}}, {{0, {}}}});
  std::vector<uint32_t> mesh{2}, coords{0};
  Indices global{int64_t{1} << 41, 0};
  CHECK(localBoxes(s->sharding, global, mesh, coords).empty());
  CHECK(localPieces(s->sharding, global, mesh, coords, 10).empty());
}

TEST_CASE("slices: two axes on one factor, the first listed is major") {
  auto s = pack({{{8, {1, 0}}}});
  std::vector<uint32_t> mesh{2, 2};
  Indices global{8};
  std::vector<uint32_t> coords{1, 0}; // axis 1 is major: 0 * 2 + 1
  CHECK(localBoxes(s->sharding, global, mesh, coords) == std::vector<Box>{{{2}, {2}, {0}}});
}

TEST_CASE("slices: a fused dimension cut in a minor factor gives several boxes") {
  // The qkv weight [3, heads 5, headDim 2], fused to 30 rows; the heads are split over tp = 2.
  auto s = pack({{{3, {}}, {5, {0}}, {2, {}}}, {{4, {}}}});
  std::vector<uint32_t> mesh{2};
  Indices global{30, 4};
  std::vector<uint32_t> first{0}, second{1};
  CHECK(localShape(s->sharding, global, mesh, first) == Indices{18, 4});
  CHECK(localShape(s->sharding, global, mesh, second) == Indices{12, 4});
  CHECK(localBoxes(s->sharding, global, mesh, second) ==
        std::vector<Box>{{{6, 0}, {4, 4}, {0, 0}}, {{16, 0}, {4, 4}, {4, 0}}, {{26, 0}, {4, 4}, {8, 0}}});
  CHECK(localPieces(s->sharding, global, mesh, second, 10) ==
        std::vector<Piece>{{24, 0, 10}, {34, 10, 6}, {64, 16, 10}, {74, 26, 6}, {104, 32, 10}, {114, 42, 6}});
}

TEST_CASE("slices: ranks together cover every element once") {
  auto s = pack({{{2, {}}, {7, {0}}, {3, {1}}}, {{5, {2}}}});
  std::vector<uint32_t> mesh{3, 2, 4};
  Indices global{42, 5};
  std::multiset<int64_t> seen;
  for (uint32_t a = 0; a < 3; ++a)
    for (uint32_t b = 0; b < 2; ++b)
      for (uint32_t c = 0; c < 4; ++c) {
        std::vector<uint32_t> coords{a, b, c};
        auto local = localShape(s->sharding, global, mesh, coords);
        auto map = expand(localBoxes(s->sharding, global, mesh, coords), global, local);
        for (int64_t index : map) {
          CHECK(index >= 0);
          seen.insert(index);
        }
        CHECK(std::is_sorted(map.begin(), map.end()));
      }
  CHECK(seen.size() == 42 * 5);
  CHECK(std::set<int64_t>(seen.begin(), seen.end()).size() == 42 * 5);
}

TEST_CASE("slices: factors that do not multiply to the dimension are refused") {
  auto s = pack({{{3, {}}, {5, {0}}}});
  std::vector<uint32_t> mesh{2}, coords{0};
  Indices global{16};
  CHECK_THROWS_AS(localShape(s->sharding, global, mesh, coords), Error);
  CHECK_THROWS_AS(localBoxes(s->sharding, global, mesh, coords), Error);
}

TEST_CASE("inputs: rows and places of each microbatch") {
  PlanT plan = makePlan(2);
  plan.microbatches = 2;
  plan.batch = 10;
  int tensor = addTensor(plan, "image", TensorKind::Input, {5, 3});
  for (int r = 0; r < 2; ++r) {
    ProgramWriter builder;
    uint32_t x = builder.slot("image", plan::DType::F32, {r == 0 ? 3 : 2, 3}, Space::Input, tensor);
    builder.shard(x, {{{5, {0}}}, {{3, {}}}});
    uint32_t y = builder.slot("y", plan::DType::F32, {9});
    uint32_t s = builder.segment();
    builder.copy(s, x, y, r == 0 ? 9 : 6);
    builder.action(s, 0);
    builder.action(s, 1).layout = 1;
    auto program = builder.finish();
    auto second = std::make_unique<LayoutT>(*program->layouts[0]);
    second->offsets[0] = 64;
    program->layouts.push_back(std::move(second));
    program->input_bytes = 128;
    program->peak_bytes = program->arena_bytes + 256;
    plan.programs.push_back(std::move(program));
    plan.ranks[static_cast<size_t>(r)]->program = static_cast<uint32_t>(r);
  }
  auto file = seal(plan);
  auto parts = inputParts(file->plan(), 1, false);
  REQUIRE(parts.size() == 2);
  CHECK(parts[1].field == "image");
  CHECK(parts[1].microbatch == 1);
  CHECK(parts[1].offset == 64);
  CHECK(parts[1].shape == Indices{2, 3});
  CHECK(parts[1].global == Indices{5, 3});
  CHECK(parts[1].boxes == std::vector<Box>{{{3, 0}, {2, 3}, {0, 0}}});
}
