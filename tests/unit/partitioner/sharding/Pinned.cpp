// Rules of a strategy: patterns, and the sharding that they give a tensor.
#include "partitioner/sharding/Pinned.h"
#include "tests/unit/partitioner/sharding/Problems.h"

#include <catch2/catch.hpp>

using namespace cleave;
using namespace cleave::partitioner;
using namespace cleave::partitioner::test;

TEST_CASE("rules of a strategy match by path and split dimensions or factors") {
  CHECK(matches("blocks.*.fc.weight", "blocks.12.fc.weight"));
  CHECK_FALSE(matches("blocks.*.weight", "blocks.1.fc.weight"));
  CHECK(matches("*", "fc1"));
  CHECK_FALSE(matches("*", "a.b"));
  CHECK(matches("a*c*.b", "abcdcx.b"));
  CHECK_FALSE(matches("a*c*d.b", "abcdcx.b"));
  CHECK(matches("a**", "a"));
  CHECK_FALSE(matches("a.*", "a"));
  std::string stars; // matching time must not double with every star
  for (int i = 0; i < 2000; ++i)
    stars += "*a";
  CHECK_FALSE(matches(stars, std::string(5000, 'a') + "b"));
  Decisions strategy;
  strategy.mesh = meshOf(1, 2);
  strategy.shard = {{"a.*", {{"0", "tp"}}, "file"}, {"a.qkv", {{"0:3x4x16.1", "tp"}}, "file"}};
  auto pinned = [&](const char *name, const std::vector<int64_t> &shape,
                    std::optional<HeadsPlace> heads = std::nullopt) {
    return pinnedSharding(name, shape, strategy, [&] { return heads; });
  };
  CHECK(pinned("a.b", {4, 4})->str() == "tp, _");
  CHECK(pinned("a.qkv", {192, 4})->str() == "(3 x 4:tp x 16), _");
  CHECK_FALSE(pinned("b.b", {4, 4}));
  CHECK_THROWS_WITH(pinned("a.b", {1}), Catch::Contains("1 elements"));
  strategy.mesh = meshOf(2, 2);
  strategy.shard = {{"a", {{"0:3x8x4.1", "dp"}, {"0:3x8x4.2", "tp"}}, "file"}};
  CHECK(pinned("a", {96})->str() == "(3 x 8:dp x 4:tp)");
  CHECK(splitTexts(pinned("a", {96})->dims[0], 0) == strategy.shard[0].dims);
  strategy.shard = {{"a", {{"0:3x8x4.1", "dp"}, {"0:3x4x8.2", "tp"}}, "file"}};
  CHECK_THROWS_WITH(pinned("a", {96}), Catch::Contains("dimension 0 is split twice"));
  strategy.shard = {{"a", {{"0", "dp"}, {"0:3x8x4.2", "tp"}}, "file"}};
  CHECK_THROWS_WITH(pinned("a", {96}), Catch::Contains("dimension 0 is split twice"));
  strategy.shard = {{"a", {{"0:3x8x4.1", "tp"}, {"0:3x8x4.2", "tp"}}, "file"}};
  CHECK_THROWS_WITH(pinned("a", {96}), Catch::Contains("axis tp splits a tensor once"));
  strategy.mesh = meshOf(1, 2);
  strategy.shard = {{"a", {{"0", "xp"}}, "file"}};
  CHECK_THROWS_WITH(pinned("a", {4}), Catch::Contains("xp"));
  for (const char *axes : {"tp+", "+tp", "+", "tp++dp"}) {
    strategy.shard = {{"a", {{"0", axes}}, "file"}};
    CHECK_THROWS_WITH(pinned("a", {4}), Catch::Contains("axis \"\" is unknown"));
  }
  strategy.shard = {{"a", {{"0:4611686018427387904x4x1.0", "tp"}}, "file"}};
  CHECK_THROWS_WITH(pinned("a", {4}), Catch::Contains("do not multiply"));
  strategy.shard = {{"a", {{"heads", "tp"}}, "file"}};
  CHECK(pinned("a", {4, 192}, HeadsPlace{1, 1, {3, 4, 16}})->str() == "_, (3 x 4:tp x 16)");
  CHECK_THROWS_WITH(pinned("a", {4, 3}, HeadsPlace{1, 1, {3, 1, 1}}), Catch::Contains("1 elements"));
  CHECK_THROWS_WITH(pinned("a", {4}), Catch::Contains("heads of an attention"));
}
